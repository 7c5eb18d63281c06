"""Executors of a sequence: how the core's actions are carried out, as named in its head.

    replies                                  nothing is carried out; replies come when they are due
    device:LAYERS:PAGE_NS:LATENCY_NS:DEPTH   the transfer controller on a simulated device
    cpu:..., cuda:...                        the same, and a real device carries out every call, too

A load is divided into LAYERS groups. The link takes PAGE_NS per page of a group, and LATENCY_NS
before each copy. At most DEPTH batches of backups are in flight.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hicache.core.errors import CallerError
from hicache.files import show
from invariants.fuzz.draws import Draws

REPLIES, DEVICE = "replies", "device"
REAL = ("cpu", "cuda")  # devices with real bytes
_FORM = re.compile(
    "(device|cpu|cuda)(?::([1-8]):([1-9][0-9]{0,8}):([0-9]{1,9}):([1-9][0-9]{0,8}))?"
)


class DeviceSettings(NamedTuple):
    """Settings of a device; see the module."""

    layers: int
    page_ns: int
    latency_ns: int
    depth: int


PLAIN = DeviceSettings(1, 1, 0, 8)
_USUAL = DeviceSettings(2, 1, 0, 8)  # of a sequence that had no device


def settings_of(executor: str) -> DeviceSettings | None:
    """The settings of a device; None for "replies". Raises CallerError."""
    form = _FORM.fullmatch(executor)
    if form is None and executor != REPLIES:
        raise CallerError(
            f"executor: expected {REPLIES}, or {DEVICE}, {', '.join(REAL)} with 1 to 8 layers, "
            f"PAGE_NS, LATENCY_NS and a depth after colons, found {show(executor)}"
        )
    if form is None:
        return None
    return DeviceSettings(*map(int, form.groups()[1:])) if form[2] else PLAIN


def device_of(executor: str) -> str:
    """The name of the device with real bytes; empty if there is none."""
    name = executor.partition(":")[0]
    return name if name in REAL else ""


def spelled(settings: DeviceSettings, name: str = DEVICE) -> str:
    """The executor with these settings, the inverse of `settings_of`."""
    return ":".join((name or DEVICE, *map(str, settings)))


def on_device(executor: str, name: str) -> str:
    """The executor with the same settings on the device of this name."""
    return spelled(settings_of(executor) or _USUAL, name)


def draw_device(draws: Draws) -> str:
    """Draws a device: slow or fast, with a deep or a shallow queue."""
    layers, depth = draws.one((1, 2, 2, 3)), draws.one((1, 2, 8))
    return spelled(DeviceSettings(layers, draws.one((1, 1, 4, 20)), draws.one((0, 2, 20)), depth))
