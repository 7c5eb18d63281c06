"""Executors of a tape: how the core's actions are carried out, as named in the tape's head.

    replies                                  nothing is carried out; replies come when they are due
    device:LAYERS:PAGE_NS:LATENCY_NS:DEPTH   the transfer controller on a simulated device

A load is divided into LAYERS groups. The link takes PAGE_NS per page of a group, and LATENCY_NS
before each copy. At most DEPTH batches of backups are in flight. Does not implement the executors
(see hand and device/hand).
"""

from __future__ import annotations

from typing import NamedTuple

from hicache.core.errors import CallerError

from .draws import Draws
from .tapes.lines import quoted

REPLIES, DEVICE = "replies", "device"
MOST_LAYERS = 8


class DeviceSettings(NamedTuple):
    """Settings of a device; see the module."""

    layers: int
    page_ns: int
    latency_ns: int
    depth: int


PLAIN = DeviceSettings(1, 1, 0, 8)


def settings_of(executor: str) -> DeviceSettings | None:
    """Returns the settings of a device, or None for "replies". Raises CallerError."""
    if executor == REPLIES:
        return None
    name, *rest = executor.split(":")
    plain = all(one.isascii() and one.isdigit() and len(one) < 10 for one in rest)
    if name == DEVICE and plain and len(rest) in (0, len(PLAIN)):
        found = DeviceSettings(*map(int, rest)) if rest else PLAIN
        if 1 <= found.layers <= MOST_LAYERS and found.page_ns and found.depth:
            return found
    raise CallerError(
        f"executor: expected {REPLIES}, or {DEVICE} with LAYERS:PAGE_NS:LATENCY_NS:DEPTH after a "
        f"colon (1 to {MOST_LAYERS} layers, a page time and a depth of at least 1), found "
        f"{quoted(executor)}"
    )


def spelled(settings: DeviceSettings) -> str:
    """Returns the name of these settings, the inverse of `settings_of`."""
    return ":".join((DEVICE, *map(str, settings)))


def draw_device(draws: Draws) -> str:
    """Draws a device: slow or fast, with a deep or a shallow queue."""
    layers, depth = draws.one((1, 2, 2, 3)), draws.one((1, 2, 8))
    return spelled(DeviceSettings(layers, draws.one((1, 1, 4, 20)), draws.one((0, 2, 20)), depth))
