"""`hicache twin`: runs a trace on a device and on the simulator, and compares them.

The device serves the trace, and a recording keeps the order of all events. The simulator is fed
that recording, so both must decide the same, and each copy on the device has a counterpart on the
simulator. A third run lets the simulator choose its own order.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from hicache import models, registry
from hicache.core.components.base import Shape, settings_for
from hicache.core.config import Config
from hicache.core.errors import CallerError, CoreBug
from hicache.devices.base import Direction
from hicache.memory.pieces import CopyShape, all_shapes, outside
from hicache.models import ModelDescription
from hicache.runtime.recording import Recorder
from hicache.runtime.recording_format import parse
from invariants.watch import Recent
from sim.engine.sequence import RequestResult, final_length
from sim.hardware import profile as hardware
from sim.hardware.measured import Measured
from sim.options import EngineOptions, WorldOptions
from sim.times.base import DEFAULT as DEFAULT_TIMES
from sim.workload import Workload
from sim.world import World

from ..devices.bench import DEVICES, Bench, Geometry, Timing, measurable, probe_of
from ..devices.runs import AtOnce, DeviceRun, OnSimulator, Service
from ..outside import entries
from ..outside.entries import entry, spelled_out
from ..replaying.observing import story_on_error
from ..replaying.options import FormatOptions, TimesOptions
from ..terminal import options as read
from ..terminal.options import option
from ..terminal.output import check_outputs, write_json, write_whole
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, pairs, progress, table

_REQUESTS = 200
_DRIFT_REPEATS = 7
_WORST = 5
_CLASSES = (
    (64 << 10, "below 64 KiB"),
    (1 << 20, "64 KiB to 1 MiB"),
    (16 << 20, "1 MiB to 16 MiB"),
    (1 << 62, "16 MiB and more"),
)


@dataclass(frozen=True)
class Options(TimesOptions, FormatOptions):
    """model, device_pages, host_pages: None means the value of the profile or the trace."""

    trace: str = option("a trace; - reads stdin", read.name, "TRACE", positional=True)
    profile: str = option("a profile that hicache calibrate wrote", *read.FILE, required=True)
    device: str = option(", ".join(DEVICES), read.choice(DEVICES), default="cpu")
    force: bool = option("accept a profile of another device", default=False)
    limit: int = option("only the first N requests; 0 is all", *read.COUNT_OR_0, default=_REQUESTS)
    model: str | None = option(
        "the model whose pages are moved (default: that of the profile)", read.choice(measurable())
    )
    device_pages: int | None = option("device pool", *read.COUNT)
    host_pages: int | None = option("host pool", *read.COUNT_OR_0)
    write_policy: str = option(
        lambda: spelled_out(registry.WRITE_POLICIES),
        entry(registry.WRITE_POLICIES),
        "POLICY",
        default="write_through",
    )
    max_running: int = option("requests running at once", *read.COUNT, default=16)
    recording: str | None = option(
        "write the recording of the device run to this file", *read.OUTPUT
    )
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", *read.OUTPUT
    )


def run(options: Options, command: str) -> int:
    """Returns 0. Raises an error with an exit code if decisions, bytes or order are wrong."""
    inputs = {"trace": options.trace, "profile": options.profile, **entries.files()}
    check_outputs(inputs, recording=options.recording, json=options.json)
    calibration = hardware.read(options.profile)
    probe = probe_of(options.device)
    machine = probe.machine()
    then = f"{calibration.made.get('device')} {calibration.machine.get('accelerator')}"
    now = f"{options.device} {machine['accelerator']}"
    if then != now and not options.force:
        raise CallerError(
            f"{calibration.path}: expected a profile of this machine ({now}), found one of {then}; "
            "calibrate here, or compare anyway with --force"
        )
    trace = options.read_from(options.trace, options.limit)
    workload = AtOnce(trace.paged(int(calibration.geometry["page_size"])))
    geometry, config = _sizes(options, calibration, workload)
    model, profile = geometry.model, hardware.of(calibration)
    engine = EngineOptions(max_running=options.max_running, layer_groups=model.layers)
    times = options.times or DEFAULT_TIMES
    service = Service(workload, config, model, profile, engine, times)
    made_by: dict[str, object] = {"device": options.device, "command": command}
    made_by["profile"] = calibration.hash
    lines: list[str] = []
    recent = Recent()
    with (
        story_on_error(recent),
        geometry.make(probe) as device,
        progress("device", len(workload.jobs)) as report,
    ):
        bench = Bench(device, geometry, _DRIFT_REPEATS)
        before = bench.drift(calibration.curves)
        real = DeviceRun(service, device, lines.append, made_by, (recent,)).run(report)
        after = bench.drift(calibration.curves)
    if options.recording:
        write_whole(options.recording, lines)
    recording = parse(options.recording or "recording", [line.encode() for line in lines])
    simulated = OnSimulator(recording, model, profile).run()
    shapes = calibration.geometry["shapes"]
    used = all_shapes(model, config.page_size, geometry.layout)
    document: dict[str, object] = {
        "trace": {"path": trace.path, "requests": len(workload.jobs)},
        "profile": {"path": calibration.path, "hash": calibration.hash, **calibration.made},
        "machine": machine,
        "geometry": _of_geometry(geometry, config),
        "device": {
            "digest": real.digest,
            "events": recording.events,
            "bytes": _bytes(real.timings),
            "hit_tokens": _hits(real.requests),
            "byte_checks": real.checked,
            "access_checks": real.accesses,
            "wall_ns": real.wall_ns,
        },
        "simulator": {
            "digest": simulated.digest,
            "bytes": _bytes(simulated.timings),
            "byte_checks": simulated.byte_checks,
            "access_checks": simulated.access_checks,
        },
        "simulator_own_order": _own_order(service),
        "drift": {"before": before, "after": after},
        "copies": {
            **compare(real.timings, simulated.timings, calibration),
            "shapes": {
                "model": calibration.geometry["model"],
                "calibrated": shapes,
                "outside": [shape._asdict() for shape in outside(used, shapes)],
            },
        },
    }
    with ignore_broken_pipe():
        print_twin(document, sys.stderr if options.json == "-" else sys.stdout)
    if options.json:
        write_json(options.json, document)
    return 0


def _sizes(options: Options, calibration: Measured, workload: Workload) -> tuple[Geometry, Config]:
    """Sizes not given: a device for a few requests at once, and a host of twice that."""
    measured = calibration.geometry
    model = models.get(options.model or measured["model"])
    size = workload.page_size
    lengths = [-(-final_length(job) // size) for job in workload.jobs]
    largest, total = max(lengths), sum(lengths)
    device = options.device_pages or max(largest + 1, min(4 * largest, total // 4))
    host = 2 * device if options.host_pages is None else options.host_pages
    if largest > device:
        raise CallerError(
            f"--device-pages: expected at least {largest} for the largest request, found {device}"
        )
    pages = [_pages(model, size, count, options.max_running) for count in (device, host)]
    how = (str(measured["layout"]), str(measured["io_backend"]), measured.get("numa_node"))
    geometry = Geometry(model, size, pages[0], pages[1], *how)
    geometry.check()
    own = [pool for pool in model.pools if not pool.anchor]
    interval = max(pool.interval for pool in own)
    window = max(pool.window for pool in own if pool.kind != "state")
    config = Config(
        page_size=size,
        device_pages=tuple(pages[0].values()),
        host_pages=tuple(pages[1].values()),
        components=model.components,
        write_policy=options.write_policy.replace("-", "_"),
        settings=settings_for(model.components, Shape(window, -(-interval // size) * size)),
    )
    return geometry, config


def _pages(model: ModelDescription, size: int, pages: int, running: int) -> dict[str, int]:
    """Pages of each component on a tier on which the first component has `pages`.

    A window, or the states, for each running request, and as much again for the cache.
    """
    result = {}
    for component in model.components:
        pool = model.pools_of(component)[0]
        if pool.kind == "state":
            result[component] = pages and max(6 * running, pages // 16)
        elif pool.window:
            result[component] = pages and min(pages, 2 * running * (-(-pool.window // size) + 1))
        else:
            result[component] = pages
    return result


def _own_order(service: Service) -> dict[str, Any]:
    """The results of the simulator with its own order of completions."""
    recorder = Recorder(service.config, lambda line: None)
    recent = Recent()
    world = World(
        service.workload,
        service.config,
        service.model,
        service.profile,
        engine=service.engine,
        options=WorldOptions(checks="every", times=service.times),
        observers=(recorder, recent),
    )
    with story_on_error(recent):
        result = world.run()
    return {
        "digest": recorder.close(),
        "events": result.core_events,
        "bytes": {"d2h": result.d2h.bytes, "h2d": result.h2d.bytes},
        "hit_tokens": _hits(result.requests),
        "byte_checks": result.byte_checks,
    }


def _hits(requests: Sequence[RequestResult]) -> dict[str, int]:
    return {
        "device": sum(request.device_tokens for request in requests),
        "host": sum(request.host_tokens for request in requests),
    }


def _of_geometry(geometry: Geometry, config: Config) -> dict[str, Any]:
    return {
        "model": geometry.model.name,
        "page_size": config.page_size,
        "device_pages": config.device_pages[0],
        "host_pages": config.host_pages[0],
        "components": {
            name: {"device": geometry.device_pages[name], "host": geometry.host_pages[name]}
            for name in config.components
        },
        "layout": geometry.layout,
        "io_backend": geometry.io_backend,
        "numa_node": geometry.numa_node,
    }


def _bytes(timings: Sequence[Timing]) -> dict[str, int]:
    moved = {"d2h": 0, "h2d": 0}
    for one in timings:
        moved[one.direction.value] += one.bytes
    return moved


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
