"""`hicache twin`: run a trace on a device and on the simulator, and compare them.

Lives here: the command and the runs. Must not live here: how copies are compared (twin_report), how
a device serves a trace (device_run), or how a recording runs on the simulator
(recording_on_sim).

The device serves the trace, and the order in which everything happened is recorded. The simulator
is fed that recording, so both decide the same or the twin fails, and each copy of the one has its
counterpart in the other. A third run leaves the simulator its own order.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hicache.core import registry
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from hicache.runtime.recording import Recorder
from hicache.runtime.recording_format import parse
from sim.engine.sequence import RequestResult, final_length
from sim.hardware import profile as hardware
from sim.hardware.measured import Measured
from sim.options import EngineOptions, WorldOptions
from sim.workload import Workload
from sim.world import World

from ..devices.copy_bench import Bench
from ..devices.device_run import AtOnce, DeviceResult, DeviceRun
from ..devices.probes import base as probes
from ..devices.probes.base import PROBES, Geometry, check_memory
from ..devices.recording_on_sim import OnSimulator, SimulatedRecording
from ..devices.stopwatch import Timing
from ..devices.tiny import model_of, names
from ..devices.twin_report import compare, print_twin
from ..formats._open import FORMATS, open_trace
from ..outside.entries import entry
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_apart, check_writable, write_json, write_whole
from ..terminal.progress import progress

_REQUESTS = 200
_DRIFT_REPEATS = 7

SUMMARY = "run a trace on a device and on the simulator, and compare them"


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """model, device_pages, host_pages: from the profile and the trace where not given."""

    trace: str
    format: str
    device: str
    profile: str
    force: bool
    limit: int
    model: str | None
    device_pages: int | None
    host_pages: int | None
    write_policy: str
    max_running: int
    alone: bool
    recording: str | None
    json: str | None


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    kinds = registry.names(PROBES)
    add("trace", metavar="TRACE", help="JSON lines, plain or gzip; - reads stdin")
    add("--format", type=read.entry(FORMATS, "auto"), default="auto", help="format of the trace")
    add("--device", type=read.choice(kinds), default="cpu", help=", ".join(kinds))
    add("--profile", required=True, metavar="FILE", help="a profile that hicache calibrate wrote")
    add("--force", action="store_true", help="accept a profile of another device")
    add(
        "--limit",
        type=read.at_least(0),
        default=_REQUESTS,
        metavar="N",
        help="only the first N requests; 0 is all",
    )
    add(
        "--model",
        type=read.choice(names()),
        default=None,
        help="the model whose pages are moved (default: that of the profile)",
    )
    add("--device-pages", type=read.at_least(1), default=None, metavar="N", help="device pool")
    add("--host-pages", type=read.at_least(0), default=None, metavar="N", help="host pool")
    add(
        "--write-policy",
        type=entry(registry.WRITE_POLICIES),
        default="write_through",
        metavar="POLICY",
        help=f"{', '.join(registry.stems(registry.WRITE_POLICIES))}, or path.py:Name",
    )
    add(
        "--max-running",
        type=read.at_least(1),
        default=16,
        metavar="N",
        help="requests running at once",
    )
    add("--alone", action="store_true", help="wait for each batch of copies before going on")
    add(
        "--recording",
        type=read.name,
        default=None,
        metavar="FILE",
        help="write the recording of the device run to this file",
    )
    add(
        "--json",
        type=read.name,
        metavar="FILE",
        help="also write the results to this file as JSON; - is stdout",
    )


def run(options: Options, command: str) -> int:
    """The exit code: 0, or an error's where decisions, bytes or order are wrong."""
    _check_files(options)
    out = sys.stderr if options.json == "-" else sys.stdout
    found = hardware.read(options.profile)
    probe = probes.load(options.device)
    machine = probe.machine()
    check_machine(found, options.device, machine, options.force)
    trace = open_trace(options.trace, options.format, options.limit)
    workload = AtOnce(trace.paged(int(found.geometry["page_size"])))
    geometry, config = _sizes(options, found, workload)
    lines: list[str] = []
    engine = EngineOptions(max_running=options.max_running, layer_groups=geometry.model.layers)
    profile = hardware.of(found)
    made: dict[str, object] = {"device": options.device, "command": command, "profile": found.hash}
    with (
        probe.make(geometry, time.perf_counter_ns) as device,
        progress("device", len(workload.jobs)) as report,
    ):
        bench = Bench(device, geometry, _DRIFT_REPEATS)
        before = bench.drift(found.curves)
        served = DeviceRun(
            workload,
            config,
            geometry.model,
            profile,
            device,
            lines.append,
            engine,
            made=made,
            alone=options.alone,
        )
        real = served.run(report)
        after = bench.drift(found.curves)
    if options.recording:
        write_whole(options.recording, lines)
    recording = parse(options.recording or "recording", [line.encode() for line in lines])
    simulated = OnSimulator(recording, geometry.model, profile).run()
    free = _free(workload, config, geometry, found, engine)
    document: dict[str, object] = {
        "trace": {"path": trace.path, "requests": len(workload.jobs)},
        "profile": {"path": found.path, "hash": found.hash, **found.made},
        "machine": machine,
        "geometry": _of_geometry(geometry, config),
        "device": _of_device(real, recording.events),
        "simulator": _of_recording(simulated),
        "simulator_own_order": free,
        "drift": {"before": before, "after": after},
        "copies": compare(real.timings, simulated.timings, found),
    }
    print_twin(document, out)
    if options.json:
        write_json(options.json, document)
    return 0


def _check_files(options: Options) -> None:
    """Before any work: what is to be written can be, and would replace nothing that is read."""
    check_apart(
        trace=options.trace,
        profile=options.profile,
        recording=options.recording,
        json=options.json,
    )
    for path in (options.json, options.recording):
        if path:
            check_writable(path)


def check_machine(found: Measured, device: str, machine: dict[str, Any], force: bool) -> None:
    """Raises CallerError for a profile of another kind of device or another accelerator."""
    then = f"{found.made.get('device')} {found.machine.get('accelerator')}"
    now = f"{device} {machine['accelerator']}"
    if then != now and not force:
        raise CallerError(
            f"{found.path}: expected a profile of this machine ({now}), found one of {then}; "
            "calibrate here, or compare anyway with --force"
        )


def _sizes(options: Options, found: Measured, workload: Workload) -> tuple[Geometry, Config]:
    """A device for a few requests at once, a host for twice that, unless given."""
    model = model_of(options.model or found.geometry["model"])
    size = workload.page_size
    lengths = [-(-final_length(job) // size) for job in workload.jobs]
    largest, total = max(lengths), sum(lengths)
    device = options.device_pages or max(largest + 1, min(4 * largest, total // 4))
    host = 2 * device if options.host_pages is None else options.host_pages
    if largest > device:
        raise CallerError(
            f"--device-pages: expected at least {largest} for the largest request, found {device}"
        )
    layout, backend = str(found.geometry["layout"]), str(found.geometry["io_backend"])
    pages = [_pages(model, size, count, options.max_running) for count in (device, host)]
    geometry = Geometry(model, size, pages[0], pages[1], layout, backend)
    check_memory(geometry)
    own = [pool for pool in model.pools if not pool.anchor]
    interval = max(pool.interval for pool in own)
    config = Config(
        page_size=size,
        device_pages=tuple(pages[0].values()),
        host_pages=tuple(pages[1].values()),
        components=model.components,
        write_policy=options.write_policy.replace("-", "_"),
        swa_window=max(pool.window for pool in own if pool.kind != "state"),
        mamba_interval=-(-interval // size) * size,
    )
    return geometry, config


def _pages(model: ModelDescription, size: int, pages: int, running: int) -> dict[str, int]:
    """Of each component on a tier where the first has `pages`: a window, or the states, of each
    running request, and as much again to keep, in that proportion."""
    found = {}
    for component in model.components:
        pool = model.pools_of(component)[0]
        if pool.kind == "state":
            found[component] = pages and max(6 * running, pages // 16)
        elif pool.window:
            found[component] = pages and min(pages, 2 * running * (-(-pool.window // size) + 1))
        else:
            found[component] = pages
    return found


def _free(
    workload: Workload, config: Config, geometry: Geometry, found: Measured, engine: EngineOptions
) -> dict[str, Any]:
    """The simulator with its own order of completions."""
    recorder = Recorder(config, lambda line: None)
    world = World(
        workload,
        config,
        geometry.model,
        hardware.of(found),
        engine=engine,
        options=WorldOptions(checks="every"),
        observers=(recorder,),
    )
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
    }


def _of_device(real: DeviceResult, events: int) -> dict[str, Any]:
    return {
        "digest": real.digest,
        "events": events,
        "bytes": _bytes(real.timings),
        "hit_tokens": _hits(real.requests),
        "byte_checks": real.checked,
        "access_checks": real.accesses,
        "wall_ns": real.wall_ns,
    }


def _of_recording(simulated: SimulatedRecording) -> dict[str, Any]:
    return {
        "digest": simulated.digest,
        "bytes": _bytes(simulated.timings),
        "byte_checks": simulated.byte_checks,
        "access_checks": simulated.access_checks,
    }


def _bytes(timings: list[Timing]) -> dict[str, int]:
    moved = {"d2h": 0, "h2d": 0}
    for one in timings:
        moved[one.direction.value] += one.bytes
    return moved
