"""Executors of a tape: how the core's actions are carried out, as named in the tape's head.

    replies                                  nothing is carried out; replies come when they are due
    device:LAYERS:PAGE_NS:LATENCY_NS:DEPTH   the transfer controller on a simulated device
    cpu:..., cuda:...                        the same, and a real device carries out every call, too

A load is divided into LAYERS groups. The link takes PAGE_NS per page of a group, and LATENCY_NS
before each copy. At most DEPTH batches of backups are in flight. With a fifth number, 1, the passes
that wait when the host polls are one batch; otherwise each is a pass of its own. Does not implement
the executors (see hand, device/hand and device/real).
"""

from __future__ import annotations

from typing import NamedTuple

from hicache.core.errors import CallerError
from hicache.files import show
from invariants.fuzz.draws import Draws

REPLIES, DEVICE = "replies", "device"
REAL = ("cpu", "cuda")  # devices with real bytes
MOST_LAYERS = 8


class DeviceSettings(NamedTuple):
    """Settings of a device; see the module."""

    layers: int
    page_ns: int
    latency_ns: int
    depth: int
    batched: int = 0


PLAIN = DeviceSettings(1, 1, 0, 8)
USUAL = DeviceSettings(2, 1, 0, 8)  # of a tape that had no device


def settings_of(executor: str) -> DeviceSettings | None:
    """Returns the settings of a device; None for "replies". Raises CallerError."""
    if executor == REPLIES:
        return None
    name, *rest = executor.split(":")
    plain = all(one.isascii() and one.isdigit() and len(one) < 10 for one in rest)
    if name in (DEVICE, *REAL) and plain and len(rest) in (0, 4, 5):
        found = DeviceSettings(*map(int, rest)) if rest else PLAIN
        if (
            1 <= found.layers <= MOST_LAYERS
            and found.page_ns
            and found.depth
            and found.batched <= 1
        ):
            return found
    raise CallerError(
        f"executor: expected {REPLIES}, or {DEVICE}, {', '.join(REAL)} with "
        "LAYERS:PAGE_NS:LATENCY_NS:DEPTH after a "
        f"colon (1 to {MOST_LAYERS} layers, a page time and a depth of at least 1), "
        f"found {show(executor)}"
    )


def device_of(executor: str) -> str:
    """Returns the name of the device with real bytes; empty if there is none."""
    name = executor.partition(":")[0]
    return name if name in REAL else ""


def spelled(settings: DeviceSettings, name: str = DEVICE) -> str:
    """Returns the executor with these settings, the inverse of `settings_of`."""
    numbers = settings if settings.batched else settings[:-1]
    return ":".join((name or DEVICE, *map(str, numbers)))


def on_device(executor: str, name: str) -> str:
    """Returns the executor with the same settings on the device of this name."""
    return spelled(settings_of(executor) or USUAL, name)


def draw_device(draws: Draws) -> str:
    """Draws a device: slow or fast, with a deep or a shallow queue."""
    layers, depth = draws.one((1, 2, 2, 3)), draws.one((1, 2, 8))
    return spelled(DeviceSettings(layers, draws.one((1, 1, 4, 20)), draws.one((0, 2, 20)), depth))
