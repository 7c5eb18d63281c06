"""`hicache twin`: runs a trace on a device and on the simulator, and compares them.

The device serves the trace, and a recording keeps the order of all events. The simulator is fed
that recording: both must decide the same, and each copy on the device has a counterpart there.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from hicache import models, registry
from hicache.core.components import settings_for
from hicache.core.config import Config
from hicache.core.errors import CallerError, CoreBug
from hicache.core.plugins import Shape
from hicache.devices.base import Direction
from hicache.memory.pools import unmeasured_shapes
from hicache.runtime.recording import parse
from sim import hardware
from sim.engine.sequence import final_length
from sim.hardware import Measured
from sim.options import EngineOptions
from sim.workload import Workload

from ..devices.bench import DEVICES, Geometry, Timing, probe_of, warm
from ..devices.runs import DeviceRun, OnSimulator, Service
from ..plugins import files as outside_files
from ..plugins import plugin, spelled_out
from ..replaying.options import TraceOptions
from ..terminal import options as read
from ..terminal.options import option
from ..terminal.output import check_outputs, write_json, write_whole
from ..terminal.tables import console, pairs, progress, table


@dataclass(frozen=True)
class Options(TraceOptions):
    """device_pages, host_pages: None means what fits the trace."""

    profile: str = option("a profile that hicache calibrate wrote", *read.FILE, required=True)
    device: str = option(", ".join(DEVICES), read.choice(DEVICES), default="cpu")
    limit: int = option("only the first N requests; 0 is all", *read.COUNT_OR_0, default=200)
    device_pages: int | None = option("device pool", *read.COUNT)
    host_pages: int | None = option("host pool", *read.COUNT_OR_0)
    write_policy: str = option(
        lambda: spelled_out(registry.WRITE_POLICIES),
        plugin(registry.WRITE_POLICIES),
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
    inputs = {"trace": options.trace, "profile": options.profile, **outside_files()}
    check_outputs(inputs, recording=options.recording, json=options.json)
    calibration = hardware.read(options.profile)
    probe = probe_of(options.device)
    machine = probe.machine()
    then = f"{calibration.made.get('device')} {calibration.machine.get('accelerator')}"
    now = f"{options.device} {machine['accelerator']}"
    if then != now:
        raise CallerError(
            f"{calibration.path}: expected a profile of this machine ({now}), found one of {then}; "
            "run hicache calibrate here"
        )
    trace, measured = options.opened(), calibration.geometry
    workload = trace.paged(int(measured["page_size"]))
    geometry, config = _sizes(options, measured, workload)
    model, profile = geometry.model, hardware.of(calibration)
    engine = EngineOptions(max_running=options.max_running, layer_groups=model.layers)
    service = Service(workload, config, model, profile, engine)
    lines: list[str] = []
    with geometry.make(probe) as device, progress("device", len(workload.jobs)) as report:
        warm(device, geometry)
        real = DeviceRun(service, device, lines.append).run(report)
    if options.recording:
        write_whole(options.recording, lines)
    recording = parse(options.recording or "recording", [line.encode() for line in lines])
    digest, predicted = OnSimulator(recording, model, profile).run()
    unmeasured = unmeasured_shapes(model, config.page_size, geometry.layout, measured["shapes"])
    document: dict[str, object] = {
        "trace": {"path": trace.path, "requests": len(workload.jobs)},
        "profile": {"path": calibration.path, "hash": calibration.hash, **calibration.made},
        "machine": machine,
        "geometry": {
            **{key: measured[key] for key in ("model", "page_size", "layout", "io_backend")},
            "components": {
                name: {"device": geometry.device_pages[name], "host": geometry.host_pages[name]}
                for name in config.components
            },
        },
        "device": {
            "digest": real.digest,
            "events": recording.events,
            "byte_checks": real.byte_checks,
            "access_checks": real.access_checks,
            "hit_tokens": {
                "device": sum(request.device_tokens for request in real.requests),
                "host": sum(request.host_tokens for request in real.requests),
            },
        },
        "simulator": {"digest": digest},
        "copies": {
            **compare(real.timings, predicted, calibration),
            "not_calibrated": [*map(str, unmeasured)],
        },
    }
    print_twin(document, sys.stderr if options.json == "-" else sys.stdout)
    if options.json:
        write_json(options.json, document)
    return 0


def _sizes(
    options: Options, measured: dict[str, Any], workload: Workload
) -> tuple[Geometry, Config]:
    """Sizes not given: a device for a few requests at once, and a host of twice that."""
    model = models.get(measured["model"])
    size = workload.page_size
    lengths = [-(-final_length(job) // size) for job in workload.jobs]
    largest, total = max(lengths), sum(lengths)
    device = options.device_pages or max(largest + 1, min(4 * largest, total // 4))
    host = 2 * device if options.host_pages is None else options.host_pages
    if largest > device:
        raise CallerError(
            f"--device-pages: expected at least {largest} for the largest request, found {device}"
        )
    near, far = {}, {}
    for component in model.components:  # a window, or the states, for each request that runs
        pool, most = model.pools_of(component)[0], host
        if pool.kind == "state":
            most = 6 * options.max_running
        elif pool.window:
            most = 2 * options.max_running * (-(-pool.window // size) + 1)
        near[component], far[component] = min(device, most), min(host, most)
    how = (str(measured["layout"]), str(measured["io_backend"]))
    own = [pool for pool in model.pools if not pool.anchor]
    interval = max(pool.interval for pool in own)
    window = max(pool.window for pool in own if pool.kind != "state")
    config = Config(
        page_size=size,
        device_pages=tuple(near.values()),
        host_pages=tuple(far.values()),
        components=model.components,
        write_policy=options.write_policy.replace("-", "_"),
        settings=settings_for(model.components, Shape(window, -(-interval // size) * size)),
    )
    return Geometry(model, size, near, far, *how), config


def compare(measured: list[Timing], predicted: list[Timing], profile: Measured) -> dict[str, Any]:
    """The comparison as JSON values. Raises CoreBug if the two lists are not the same copies."""
    pairs = list(zip(measured, predicted, strict=False))
    same = [real[:5] == other[:5] for real, other in pairs]  # all but the times
    if not all(same) or len(measured) != len(predicted):
        raise CoreBug(
            f"copy {[*same, False].index(False)}: the device and the simulator issued different "
            f"ones, {len(measured)} and {len(predicted)} in all"
        )
    return {
        "count": len(measured),
        "overall": {
            way.value: _errors([pair for pair in pairs if pair[0].direction is way])
            for way in Direction
        },
        "outside_calibration": sum(
            not profile.curves[real.direction.value].covers(real.bytes) for real in measured
        ),
    }


def _errors(pairs: Sequence[tuple[Timing, Timing]]) -> dict[str, Any]:
    """Sums, and percentiles of the absolute relative error (nearest rank)."""
    moved = {"count": len(pairs), "bytes": sum(real.bytes for real, _ in pairs)}
    if not pairs:
        return moved
    # above 0 if the prediction is too long
    errors = np.array([(other.ns - real.ns) / max(1, real.ns) for real, other in pairs])
    p50, p90, p99 = np.percentile(np.abs(errors), (50, 90, 99), method="inverted_cdf")
    return {
        **moved,
        "measured_ns": sum(real.ns for real, _ in pairs),
        "predicted_ns": sum(other.ns for _, other in pairs),
        "error_p50": float(p50),
        "error_p90": float(p90),
        "error_p99": float(p99),
        "bias": float(np.median(errors)),
    }


def print_twin(document: dict[str, Any], stream: TextIO) -> None:
    out, size, copies = console(stream), document["geometry"], document["copies"]
    real, simulated = document["device"], document["simulator"]
    pages = ", ".join(
        f"{name} {each['device']:,} on device and {each['host']:,} on host"
        for name, each in size["components"].items()
    )
    rows = [
        ("trace", f"{document['trace']['path']}, {document['trace']['requests']:,} requests"),
        ("device", f"{document['machine']['accelerator']}, {size['layout']}, {size['io_backend']}"),
        ("model", f"{size['model']}, pages of {size['page_size']} tokens: {pages}"),
        ("decisions, device", real["digest"]),
        ("decisions, simulator", simulated["digest"]),
        ("the same decisions over", f"{real['events']:,} events"),
        ("accesses in order", f"{real['access_checks']:,}"),
        ("reads compared", f"{real['byte_checks']:,}"),
        ("copies of other sizes", f"{copies['outside_calibration']:,} of {copies['count']:,}"),
        *(("not calibrated", shape) for shape in copies["not_calibrated"]),
    ]
    out.print(pairs("Device and simulator", rows))
    heads = ("copies", "count", "MB", "measured", "predicted", "p50", "p90", "p99", "bias")
    errors = table("Times of copies (ms), and errors of those predicted", *heads)
    for name, row in copies["overall"].items():
        if row["count"]:
            times = [f"{row[key] / 1e6:.2f}" for key in ("measured_ns", "predicted_ns")]
            shares = [f"{row[f'error_{key}']:.1%}" for key in ("p50", "p90", "p99")]
            size = f"{row['bytes'] / 1e6:,.1f}"
            errors.add_row(name, f"{row['count']:,}", size, *times, *shares, f"{row['bias']:+.1%}")
    out.print(errors)
