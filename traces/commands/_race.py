"""`hicache twin --race`: makes a race that the simulator finds in a recording happen on a device.

Contains its options and its output. Does not hold streams or leave out waits; see devices/forced.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import cast

from hicache import models
from hicache.core.errors import CallerError
from hicache.devices.base import Direction, Holdable
from hicache.models import ModelDescription
from hicache.runtime.controller import LOAD, WRITE
from hicache.runtime.recording_format import Recording, read_recording
from sim.hardware import profile as hardware

from ..devices.forced import STREAMS, ForcedResult, Hold, on_device, on_simulator
from ..devices.probes import base as probes
from ..devices.probes.base import TINY, Geometry, check_geometry
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.rows import option

_HELD_NS = 50_000_000
_LANES = {Direction.DEVICE_TO_HOST.value: WRITE, Direction.HOST_TO_DEVICE.value: LOAD}
_SHOWN = 5
LAYOUT, BACKEND, HARDWARE = "page_first_direct", "direct", "h100"


def _hold(text: str) -> Hold:
    """Parses LANE[:ITEM]=MICROSECONDS."""
    place, _, time_us = text.partition("=")
    lane, colon, item = place.partition(":")
    stream = _LANES.get(lane, lane)
    if stream not in STREAMS or not time_us.isdecimal() or (colon and not item.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"expected LANE[:ITEM]=MICROSECONDS with a lane of h2d, d2h, compute, found {text}; "
            "for example h2d:3=50000"
        )
    return Hold(stream, int(time_us) * 1000, int(item) if colon else -1)


@dataclass(frozen=True)
class RaceOptions(OptionRecord):
    """race: the recording. drop: number of the wait to leave out."""

    HEADING = "a race in a recording, instead of a trace"

    race: str | None = option(
        "replay this recording of `hicache twin` with one stream wait removed, "
        "to make a race that the simulator finds happen on the device; takes --device, --model and "
        "what is below",
        read.name,
        "RECORDING",
    )
    drop: int | None = option("leave out wait number N (default: none)", *read.COUNT_OR_0)
    hold: Hold | None = option(
        "keep stream h2d, d2h or compute busy for this many microseconds before its item number "
        "ITEM, or before each item (default: the hold that exposes the missing wait)",
        _hold,
        "LANE[:ITEM]=US",
    )
    layout: str | None = option(f"layout of the host tier (default: {LAYOUT})", read.name)
    io_backend: str | None = option(f"how to copy pages (default: {BACKEND})", read.name)
    hardware: str | None = option(
        f"hardware profile of the simulator (default: {HARDWARE})", read.name, "NAME|FILE"
    )


def force(options: RaceOptions, device: str, model_name: str | None, command: str) -> int:
    """Returns 0 if the device behaved as the simulator predicted, 1 otherwise."""
    assert options.race is not None
    recording = read_recording(options.race)
    model = models.get(model_name or TINY)
    if recording.config.components != model.components:
        expected = ", ".join(recording.config.components)
        raise CallerError(
            f"--model: expected the recording's components ({expected}), "
            f"found {', '.join(model.components)} of {model.name}; give the model that was recorded"
        )
    if options.drop is None and options.hold is None:
        raise CallerError("--race: needs --drop, --hold or both; give one")
    drop = -1 if options.drop is None else options.drop
    profile = hardware.get(options.hardware or HARDWARE)
    shown = on_simulator(recording, model, profile, drop)
    if drop >= len(shown.waits):
        raise CallerError(
            f"--drop: expected a wait from 0 to {len(shown.waits) - 1}, found {drop}; "
            "give one of these"
        )
    if drop >= 0:
        wait = shown.waits[drop]
        print(f"wait {drop} left out: {wait.stream} behind {wait.behind}")
    print(f"simulator: {shown.failure or 'no failure'}")

    def run(left_out: int, hold: Hold) -> ForcedResult:
        probe = probes.load(device)
        probe.machine()
        with probe.make(_geometry(options, recording, model), time.perf_counter_ns) as made:
            return on_device(recording, model, cast(Holdable, made), left_out, hold)

    for hold in [options.hold] if options.hold else wait.holds(_HELD_NS):
        # With every wait first: a CUDA device waits for all streams when it uses a kernel or a
        # piece of memory for the first time, and then nothing overtakes the stream that is held.
        ordered = run(-1, hold) if drop >= 0 else None
        forced = run(drop, hold)
        if forced.wrong or not shown.failure:
            break
    where = "each item" if hold.item < 0 else f"item {hold.item}"
    held = f"{hold.stream} held {hold.time_ns // 1000:,} us before {where}"
    print(f"{device}, {held}: {_summary(forced)}")
    for line in forced.wrong[:_SHOWN]:
        print(f"  {line}")
    as_predicted = bool(forced.wrong) == bool(shown.failure)
    if ordered is not None:
        print(f"{device}, the same with every wait in place: {_summary(ordered)}")
        as_predicted = as_predicted and not ordered.wrong
    if not as_predicted:
        print(f"the device did not do what the simulator predicted\nreplay: {command}")
    return 0 if as_predicted else 1


def _geometry(options: RaceOptions, recording: Recording, model: ModelDescription) -> Geometry:
    config = recording.config
    sizes = [
        dict(zip(config.components, pages, strict=True))
        for pages in (config.device_pages, config.host_pages)
    ]
    layout, backend = options.layout or LAYOUT, options.io_backend or BACKEND
    geometry = Geometry(model, config.page_size, sizes[0], sizes[1], layout, backend)
    check_geometry(geometry)
    return geometry


def _summary(forced: ForcedResult) -> str:
    return f"{len(forced.wrong):,} of {forced.compared:,} reads found wrong bytes"
