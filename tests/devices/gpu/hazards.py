"""Checks that the hazard detector notices the loss of any stream wait, with real calls.

A program of the transfer controller and a model runs once with all waits, and once without each
wait. The detector must report nothing the first time, and a hazard every other time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import numpy as np

from hicache.core.actions import Backup, Copy, Load
from hicache.core.types import Pages, Tier
from hicache.devices.base import Device, Front, Mark, Stream, Touch
from hicache.runtime.controller import COMPUTE, TransferController
from sim.device.hazards import HazardDevice, Hazards
from sim.errors import HazardError

from . import _bench
from .base import Figure, Outcome

PAGES = 8


class WithoutWait(Front[Device]):
    """Passes calls to the detector except one wait. waits: the number of waits so far."""

    def __init__(self, inner: Device, dropped: int) -> None:
        super().__init__(inner)
        self._dropped = dropped
        self.waits = 0

    def wait(self, stream: Stream, mark: Mark) -> None:
        self.waits += 1
        if self.waits - 1 != self._dropped:
            self.inner.wait(stream, mark)


def run() -> Outcome:
    figures, faults = [], []
    for backend in ("direct", "kernel"):
        waits, missed = drop_each_wait(partial(_bench.small, backend, PAGES))
        figures.append(Figure(f"{backend}: waits left out, one at a time", waits, "", 1))
        faults += [
            f"{backend}: the loss of wait {number} of {waits} was not noticed" for number in missed
        ]
    return Outcome(figures, faults)


def drop_each_wait(make: Callable[[], AbstractContextManager[Device]]) -> tuple[int, list[int]]:
    """The number of waits of the program, and the waits whose loss was not noticed."""
    with make() as device:
        waits = program(device, -1)
    missed = []
    for number in range(waits):
        with make() as device:
            try:
                program(device, number)
            except HazardError:
                continue
            missed.append(number)
    return waits, missed


def program(device: Device, without: int) -> int:
    """Computes one prompt, backs up its pages, and loads a prefix of another into reused pages.

    Returns the number of waits. The host does not look at any mark, because that would order all
    later work.
    """
    places = {(tier, "full"): PAGES for tier in (Tier.DEVICE, Tier.HOST)}
    detector = WithoutWait(HazardDevice(device, Hazards(places, device.layers)), without)
    controller = TransferController(detector)
    compute = detector.stream(COMPUTE)
    everything = (0, detector.layers)
    detector.touch(compute, Touch("full", _pages(0, 1, 2, 3), "w", everything, "prefill of a"))
    detector.touch(compute, Touch("full", _pages(4, 5), "r", everything, "decode of b"))
    controller.submit(Backup(1, (Copy("full", _pages(0, 1), _pages(6, 7)),)))
    controller.submit(Load(2, 1, (Copy("full", _pages(2, 3), _pages(4, 5)),)))
    controller.start()
    for layer, mark in enumerate(controller.load_marks(2)):
        detector.wait(compute, mark)
        detector.touch(
            compute, Touch("full", _pages(4, 5), "r", (layer, layer + 1), "prefill of c")
        )
    return detector.waits


def _pages(*numbers: int) -> Pages:
    return np.array(numbers, dtype=np.int64)
