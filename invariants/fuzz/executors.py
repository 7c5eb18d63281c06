"""Who carries out what the core asks for, as the head of a tape names it.

    replies                                  nothing is carried out; a reply is there when it is due
    device:LAYERS:PAGE_NS:LATENCY_NS:DEPTH   the transfer controller, on a simulated device

A load is cut into LAYERS groups; the link takes PAGE_NS for a page of one of them and LATENCY_NS
before each copy; at most DEPTH batches of backups are in flight. Must not live here: how either
works (hand, device_hand).
"""

from __future__ import annotations

from typing import NamedTuple

from hicache.core.errors import CallerError

from .draws import Draws
from .tapes.lines import quoted

REPLIES, DEVICE = "replies", "device"
MOST_LAYERS = 8


class DeviceSettings(NamedTuple):
    """See the module."""

    layers: int
    page_ns: int
    latency_ns: int
    depth: int


PLAIN = DeviceSettings(1, 1, 0, 8)


def settings_of(executor: str) -> DeviceSettings | None:
    """What the name says of the device; None where there is none. Raises CallerError."""
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
    """The other half of `settings_of`."""
    return ":".join((DEVICE, *map(str, settings)))


def draw_device(draws: Draws) -> str:
    """Some device: slow or fast beside what operations take, deep or shallow."""
    layers, depth = draws.one((1, 2, 2, 3)), draws.one((1, 2, 8))
    return spelled(DeviceSettings(layers, draws.one((1, 1, 4, 20)), draws.one((0, 2, 20)), depth))
