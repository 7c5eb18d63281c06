"""What calibration and twin ask of a kind of device: to exist, to be described, to be measured.

A probe is one file in this folder, named after the device it makes. Must not live here: what is
measured through the device itself, which is the same for all (traces/commands/calibrate).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from hicache.models import ModelDescription
from traces.devices.stopwatch import TimedInspectable

Timer = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Geometry:
    """What is copied: pages of a model in a layout, by a backend. sizes per component."""

    model: ModelDescription
    page_size: int
    device_pages: dict[str, int]
    host_pages: dict[str, int]
    layout: str
    io_backend: str


class Probe(Protocol):
    """A module of this folder."""

    SUMMARY: str

    def machine(self) -> dict[str, Any]:
        """What it is; `accelerator` tells one from another. CallerError where there is none."""

    def rates(self) -> dict[str, int]:
        """flops_per_s, memory_bytes_per_s and memory_bytes, measured or asked of the system."""

    def make(self, geometry: Geometry, timer: Timer) -> AbstractContextManager[TimedInspectable]:
        """A device that is closed at the end of the block."""
