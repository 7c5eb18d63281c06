"""Executors of a sequence: how the core's actions are carried out, as named in its head.

replies                                  nothing is carried out; replies come when they are due
files                                    the same; a real store is played in the end
device:LAYERS:PAGE_NS:LATENCY_NS:DEPTH   the transfer controller on a simulated device
"""

import re
from typing import NamedTuple

from hicache.core.errors import CallerError
from hicache.files import show
from invariants.fuzz.draws import Draws

REPLIES, FILES, DEVICE = "replies", "files", "device"
_FORM = re.compile(r"device(?::([1-8]):([1-9]\d{0,8}):(\d{1,9}):([1-9]\d{0,8}))?", re.ASCII)


class DeviceSettings(NamedTuple):
    """Settings of a device; see the module. `device` alone has these."""

    layers: int = 1
    page_ns: int = 1
    latency_ns: int = 0
    depth: int = 8


def settings_of(executor: str) -> DeviceSettings | None:
    """The settings of a device; None if there is none. Raises CallerError."""
    form = _FORM.fullmatch(executor)
    if form is None and executor not in (REPLIES, FILES):
        numbers = "1 to 8 layers, PAGE_NS, LATENCY_NS and a depth after colons"
        expected = f"{REPLIES}, {FILES}, or {DEVICE} with {numbers}"
        raise CallerError(f"executor: expected {expected}, found {show(executor)}")
    return DeviceSettings(*map(int, filter(None, form.groups()))) if form else None


def draw_device(draws: Draws) -> str:
    """Draws a device: slow or fast, with a deep or a shallow queue."""
    layers, depth = draws.choice((1, 2, 2, 3)), draws.choice((1, 2, 8))
    return f"{DEVICE}:{layers}:{draws.choice((1, 1, 4, 20))}:{draws.choice((0, 2, 20))}:{depth}"
