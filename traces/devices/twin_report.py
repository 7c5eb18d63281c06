"""Compares measured and predicted times of the same copies, and prints the result.

Contains the pairing, the error percentiles, the worst copies and those outside the calibration.
Does not run anything; see commands/twin.
"""

from __future__ import annotations

from typing import Any, TextIO

import numpy as np

from hicache.core.errors import CoreBug
from hicache.devices.base import Direction
from hicache.memory.pieces import CopyShape
from sim.hardware.measured import Measured

from .stopwatch import Timing

WORST = 5
_MUCH_DRIFT = 0.25  # of the calibrated time of a copy
_CLASSES = (
    (64 << 10, "below 64 KiB"),
    (1 << 20, "64 KiB to 1 MiB"),
    (16 << 20, "1 MiB to 16 MiB"),
    (1 << 62, "16 MiB and more"),
)


def compare(measured: list[Timing], predicted: list[Timing], profile: Measured) -> dict[str, Any]:
    """The comparison as JSON values. Raises CoreBug if the two lists are not the same copies."""
    pairs = list(zip(measured, predicted, strict=False))
    copies = [
        tuple((one.direction, one.component, one.pages, one.layers, one.bytes) for one in pair)
        for pair in pairs
    ]
    first = next((at for at, (one, other) in enumerate(copies) if one != other), None)
    if first is not None or len(measured) != len(predicted):
        raise CoreBug(
            f"copy {len(pairs) if first is None else first}: the device and the simulator issued "
            f"different ones, {len(measured)} and {len(predicted)} in all"
        )
    good = [pair for pair in pairs if not pair[0].failed]
    classes = {
        f"{way.value}, {name}": _errors(
            [pair for pair in good if _class_of(pair[0]) == (way, name)]
        )
        for way in Direction
        for _, name in _CLASSES
    }
    outside = [one for one, _ in good if not profile.curves[one.direction.value].covers(one.bytes)]
    worst = sorted(good, key=lambda pair: (-abs(_error(pair)), pair[0].number))[:WORST]
    return {
        "count": len(measured),
        "failed": len(measured) - len(good),
        "overall": {
            way.value: _errors([pair for pair in good if pair[0].direction is way])
            for way in Direction
        },
        "classes": {name: errors for name, errors in classes.items() if errors["count"]},
        "worst": [
            {
                "copy": real.number,
                "direction": real.direction.value,
                "bytes": real.bytes,
                "layers": list(real.layers),
                "why": real.why,
                "measured_ns": real.ns,
                "predicted_ns": simulated.ns,
            }
            for real, simulated in worst
        ],
        "outside_calibration": {
            "count": len(outside),
            "calibrated_bytes": {
                way: [curve.points[0][0], curve.points[-1][0]]
                for way, curve in sorted(profile.curves.items())
            },
            "found_bytes": [
                min((one.bytes for one in outside), default=0),
                max((one.bytes for one in outside), default=0),
            ],
        },
    }


def _error(pair: tuple[Timing, Timing]) -> float:
    """The relative error; above 0 if the prediction is too long."""
    real, simulated = pair
    return (simulated.ns - real.ns) / max(1, real.ns)


def _class_of(one: Timing) -> tuple[Direction, str]:
    return one.direction, next(name for limit, name in _CLASSES if one.bytes < limit)


def _errors(pairs: list[tuple[Timing, Timing]]) -> dict[str, Any]:
    """Sums, and percentiles of the absolute relative error (nearest rank)."""
    if not pairs:
        return {"count": 0}
    errors = np.array([_error(pair) for pair in pairs])
    p50, p90, p99 = np.percentile(np.abs(errors), (50, 90, 99), method="inverted_cdf")
    return {
        "count": len(pairs),
        "measured_ns": sum(real.ns for real, _ in pairs),
        "predicted_ns": sum(simulated.ns for _, simulated in pairs),
        "error_p50": float(p50),
        "error_p90": float(p90),
        "error_p99": float(p99),
        "bias": float(np.median(errors)),
    }


def print_twin(document: dict[str, Any], out: TextIO) -> None:
    """Prints the results of the command."""
    real, simulated, free = (
        document[name] for name in ("device", "simulator", "simulator_own_order")
    )
    size = document["geometry"]
    print(
        f"{document['trace']['path']}: {document['trace']['requests']:,} requests on "
        f"{document['machine']['accelerator']}, {size['model']}, pages of {size['page_size']} "
        f"tokens, {size['device_pages']:,} on device and {size['host_pages']:,} on host, "
        f"{size['layout']}, {size['io_backend']}",
        file=out,
    )
    row = "{:<22}{:>34}{:>34}{:>34}".format
    print(row("", "device", "simulator, same order", "simulator, its own order"), file=out)
    print(row("decisions", real["digest"], simulated["digest"], free["digest"]), file=out)
    for way, words in (("d2h", "bytes to host"), ("h2d", "bytes to device")):
        counts = (f"{one['bytes'][way]:,}" for one in (real, simulated, free))
        print(row(words, *counts), file=out)
    hits = [
        f"{one['hit_tokens']['device']:,} + {one['hit_tokens']['host']:,}" for one in (real, free)
    ]
    print(row("hit tokens, by tier", hits[0], "", hits[1]), file=out)
    checks = (f"{one['byte_checks']:,}" for one in (real, simulated, free))
    print(row("bytes compared, times", *checks), file=out)
    same = "the same" if real["digest"] == simulated["digest"] else "DIFFERENT"
    print(
        f"{same} decisions over {real['events']:,} events; {real['wall_ns'] / 1e9:.1f} s on the "
        f"device, {real['access_checks']:,} accesses there ordered by the hazard detector",
        file=out,
    )
    _print_copies(document["copies"], out)
    other = " of other pieces" if document["copies"]["shapes"]["outside"] else ""
    for when, drift in document["drift"].items():
        if drift:
            changes = ", ".join(f"{way} {100 * ratio:+.1f}%" for way, ratio in drift.items())
            print(
                f"copies alone, {when} the run, against the calibration{other}: {changes}", file=out
            )


def _print_copies(copies: dict[str, Any], out: TextIO) -> None:
    row = "{:<24}{:>8}{:>14}{:>14}{:>9}{:>9}{:>9}{:>9}".format
    print(
        row("copies", "count", "measured ms", "predicted ms", "err p50", "p90", "p99", "bias"),
        file=out,
    )
    for name, one in [*copies["overall"].items(), *copies["classes"].items()]:
        if one["count"]:
            print(
                row(
                    name,
                    f"{one['count']:,}",
                    f"{one['measured_ns'] / 1e6:.2f}",
                    f"{one['predicted_ns'] / 1e6:.2f}",
                    *(f"{100 * one[key]:.1f}%" for key in ("error_p50", "error_p90", "error_p99")),
                    f"{100 * one['bias']:+.1f}%",
                ),
                file=out,
            )
    for one in copies["worst"]:
        print(
            f"  apart: copy {one['copy']} {one['direction']} of {one['bytes']:,} bytes, measured "
            f"{one['measured_ns'] / 1e3:.1f} us, predicted {one['predicted_ns'] / 1e3:.1f} us "
            f"({one['why']})",
            file=out,
        )
    if copies["failed"]:
        print(f"{copies['failed']} copies failed on the device and are left out", file=out)
    unlike = [CopyShape(**shape) for shape in copies["shapes"]["outside"]]
    if unlike:
        measured = ", ".join(str(CopyShape(**shape)) for shape in copies["shapes"]["calibrated"])
        print(
            f"not calibrated: {', '.join(map(str, unlike))}; the profile was measured on "
            f"{copies['shapes']['model']}, {measured}, and copies of as many bytes in other pieces "
            f"take other times; measure this model with hicache calibrate --model",
            file=out,
        )
    outside = copies["outside_calibration"]
    if outside["count"]:
        low, high = outside["found_bytes"]
        ranges = ", ".join(
            f"{way} {first:,} to {last:,}"
            for way, (first, last) in outside["calibrated_bytes"].items()
        )
        print(
            f"{outside['count']} copies of {low:,} to {high:,} bytes are outside the "
            f"calibrated range ({ranges}); their predictions are extrapolated",
            file=out,
        )
    else:
        also = ", but not every copy its shape" if unlike else ""
        print(f"every copy lies within the calibrated range of bytes{also}", file=out)


def conclusions(document: dict[str, Any]) -> list[str]:
    """What the comparison means, in plain words. document: the results of the command."""
    copies = document["copies"]
    told = [
        f"The device and the simulator took the same decisions over "
        f"{document['device']['events']:,} events, and every byte compared was right."
    ]
    parts = [
        f"copies {way_in_words} took {one['measured_ns'] / one['predicted_ns']:.1f} times as long "
        "as predicted"
        for way, way_in_words in (("d2h", "to host"), ("h2d", "to the device"))
        if (one := copies["overall"][way])["count"] and one["predicted_ns"]
    ]
    if parts:
        told.append(f"In sum, {' and '.join(parts)}.")
    drift = [abs(ratio) for one in document["drift"].values() for ratio in one.values()]
    if max(drift, default=0.0) > _MUCH_DRIFT:
        told.append(
            "Single copies took other times than in the calibration, so the machine has changed "
            "since, or other work runs on it. Measure again with hicache calibrate on an idle "
            "machine before you trust the times."
        )
    if copies["shapes"]["outside"]:
        told.append("The profile was measured on another model; calibrate with this one.")
    elif copies["outside_calibration"]["count"] > copies["count"] // 2:
        told.append(
            "Most copies have sizes that were not calibrated. Try hicache calibrate with more "
            "--pages."
        )
    return told
