"""`hicache force`: makes a race that the simulator finds in a recording happen on a device.

Contains the command and its output. Does not hold streams or leave out waits; see devices/forced.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import cast

from hicache import models
from hicache.core import registry
from hicache.core.errors import CallerError
from hicache.devices.base import Direction, Holdable
from hicache.runtime.controller import LOAD, WRITE
from hicache.runtime.recording_format import Recording, read_recording
from sim.hardware import profile as hardware

from ..devices.checked_device import Hold
from ..devices.forced import STREAMS, ForcedResult, on_device, on_simulator
from ..devices.probes import base as probes
from ..devices.probes.base import PROBES, Geometry, check_geometry
from ..devices.tiny import TINY, names
from ..terminal import options as read
from ..terminal.options import OptionRecord

SUMMARY = "replay a recording with one stream wait removed, to expose the race"

_HELD_NS = 50_000_000
_LANES = {Direction.DEVICE_TO_HOST.value: WRITE, Direction.HOST_TO_DEVICE.value: LOAD}
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """drop: number of the wait to leave out, -1 for none."""

    recording: str
    device: str
    model: str
    layout: str
    io_backend: str
    hardware: str
    drop: int
    hold: str | None


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    kinds = registry.names(PROBES)
    add("recording", type=read.name, metavar="RECORDING", help="a recording of `hicache twin`")
    add("--device", type=read.choice(kinds), default="cpu", help=", ".join(kinds))
    add("--model", type=read.choice(names()), default=TINY, help="the model whose pages are moved")
    add("--layout", default="page_first_direct", help="layout of the host tier")
    add("--io-backend", default="direct", help="how to copy pages")
    add("--hardware", default="h100", metavar="NAME|FILE", help="hardware profile of the simulator")
    add(
        "--drop",
        type=read.at_least(0),
        default=-1,
        metavar="N",
        help="leave out wait number N (default: none)",
    )
    add(
        "--hold",
        default=None,
        metavar="LANE[:ITEM]=US",
        help="keep stream h2d, d2h or compute busy for this many microseconds before its item "
        "number ITEM, or before each item (default: the hold that exposes the missing wait)",
    )


def run(options: Options, command: str) -> int:
    """Returns 0 if the device behaved as the simulator predicted, 1 otherwise."""
    recording = read_recording(options.recording)
    model = models.get(options.model)
    if recording.config.components != model.components:
        expected = ", ".join(recording.config.components)
        raise CallerError(
            f"--model: expected the recording's components ({expected}), "
            f"found {', '.join(model.components)} of {model.name}; give the model that was recorded"
        )
    if options.drop < 0 and options.hold is None:
        raise CallerError("force: expected --drop, --hold or both, found neither; give one")
    given = None if options.hold is None else hold_of(options.hold)
    profile = hardware.get(options.hardware)
    shown = on_simulator(recording, model, profile, options.drop)
    if options.drop >= len(shown.waits):
        raise CallerError(
            f"--drop: expected a wait from 0 to {len(shown.waits) - 1}, found {options.drop}; "
            "give one of these"
        )
    if options.drop >= 0:
        wait = shown.waits[options.drop]
        print(f"wait {options.drop} left out: {wait.stream} behind {wait.behind}")
    print(f"simulator: {shown.failure or 'no failure'}")
    hold = given or wait.hold(_HELD_NS)
    where = "each item" if hold.item < 0 else f"item {hold.item}"
    held = f"{hold.stream} held {hold.time_ns // 1000:,} us before {where}"
    forced = _run(options, recording, hold, options.drop)
    print(f"{options.device}, {held}: {_summary(forced)}")
    for line in forced.wrong[:_SHOWN]:
        print(f"  {line}")
    as_predicted = bool(forced.wrong) == bool(shown.failure)
    if options.drop >= 0:
        ordered = _run(options, recording, hold, -1)
        print(f"{options.device}, the same with every wait in place: {_summary(ordered)}")
        as_predicted = as_predicted and not ordered.wrong
    if not as_predicted:
        print(f"the device did not do what the simulator predicted\nreplay: {command}")
    return 0 if as_predicted else 1


def hold_of(text: str) -> Hold:
    """Parses LANE[:ITEM]=MICROSECONDS. Raises CallerError for other text."""
    place, _, time_us = text.partition("=")
    lane, colon, item = place.partition(":")
    stream = _LANES.get(lane, lane)
    if stream not in STREAMS or not time_us.isdecimal() or (colon and not item.isdecimal()):
        raise CallerError(
            f"--hold: expected LANE[:ITEM]=MICROSECONDS with a lane of h2d, d2h, compute, "
            f"found {text}; for example h2d:3=50000"
        )
    return Hold(stream, int(time_us) * 1000, int(item) if colon else -1)


def _run(options: Options, recording: Recording, hold: Hold, drop: int) -> ForcedResult:
    config, model = recording.config, models.get(options.model)
    sizes = [
        dict(zip(config.components, pages, strict=True))
        for pages in (config.device_pages, config.host_pages)
    ]
    geometry = Geometry(
        model, config.page_size, sizes[0], sizes[1], options.layout, options.io_backend
    )
    check_geometry(geometry)
    probe = probes.load(options.device)
    probe.machine()
    with probe.make(geometry, time.perf_counter_ns) as device:
        return on_device(recording, model, cast(Holdable, device), drop, hold)


def _summary(forced: ForcedResult) -> str:
    return f"{len(forced.wrong):,} of {forced.compared:,} reads found wrong bytes"
