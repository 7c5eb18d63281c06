"""Compares measured and predicted times of the same copies, and prints the result of a twin."""

from __future__ import annotations

from typing import Any, TextIO

import numpy as np

from hicache.core.errors import CoreBug
from hicache.devices.base import Direction
from hicache.memory.pieces import CopyShape
from sim.hardware.measured import Measured

from ..terminal.tables import console, pairs, table
from .stopwatch import Timing

_WORST = 5
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
    worst = sorted(good, key=lambda pair: (-abs(_error(pair)), pair[0].number))[:_WORST]
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


def print_twin(document: dict[str, Any], stream: TextIO) -> None:
    """Prints the results of the command."""
    out, size = console(stream), document["geometry"]
    runs = [document[name] for name in ("device", "simulator", "simulator_own_order")]
    real, copies = runs[0], document["copies"]
    unlike = [str(CopyShape(**shape)) for shape in copies["shapes"]["outside"]]
    known = [str(CopyShape(**shape)) for shape in copies["shapes"]["calibrated"]]
    outside = copies["outside_calibration"]
    pages = f"{size['device_pages']:,} pages on device, {size['host_pages']:,} on host"
    rows = [
        ("trace", f"{document['trace']['path']}, {document['trace']['requests']:,} requests"),
        ("device", f"{document['machine']['accelerator']}, {size['layout']}, {size['io_backend']}"),
        ("model", f"{size['model']}, pages of {size['page_size']} tokens; {pages}"),
        ("decisions, device", runs[0]["digest"]),
        ("decisions, simulator", runs[1]["digest"]),
        ("decisions, own order", runs[2]["digest"]),
        ("the same decisions over", f"{real['events']:,} events"),
        ("accesses in order", f"{real['access_checks']:,}"),
        ("reads compared", f"{real['byte_checks']:,}"),
        (
            "copies of other sizes",
            f"{outside['count']:,} of {copies['count']:,}",
        ),
    ]
    if copies["failed"]:
        rows.append(("copies that failed", f"{copies['failed']:,} (left out)"))
    if unlike:
        rows.append(("not calibrated", f"{', '.join(unlike)}; calibrated: {', '.join(known)}"))
    for when, ways in document["drift"].items():
        rows += [(f"drift {when}, {way}", f"{ratio:+.0%}") for way, ratio in ways.items()]
    out.print(pairs("Device and simulator", rows))
    moved = table("Bytes", "", "device", "simulator", "own order")
    for way, words in (("d2h", "to host"), ("h2d", "to device")):
        moved.add_row(words, *(f"{one['bytes'][way]:,}" for one in runs))
    out.print(moved)
    heads = ("copies", "count", "measured", "predicted", "p50", "p90", "p99", "bias")
    errors = table("Times of copies (ms), and errors of those predicted", *heads)
    for name, one in [*copies["overall"].items(), *copies["classes"].items()]:
        if one["count"]:
            times = [f"{one[key] / 1e6:.2f}" for key in ("measured_ns", "predicted_ns")]
            shares = [f"{one[f'error_{key}']:.1%}" for key in ("p50", "p90", "p99")]
            errors.add_row(name, f"{one['count']:,}", *times, *shares, f"{one['bias']:+.1%}")
    out.print(errors)
