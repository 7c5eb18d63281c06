"""The poison of free pages and the spoiled targets of loads (sim/device/shadow)."""

from __future__ import annotations

import numpy as np

from hicache.core.errors import About
from hicache.core.types import Tier
from hicache.devices.base import Area, CopyJob, Touch
from sim.device.shadow import Shadow
from sim.errors import HazardError, WrongBytesError
from tests.tiny import pages

from .clocks import run
from .found_out import found_out
from .test_bytes import ALL, D2H, DEVICE, H2D, Bench


class Poisoned(Bench):
    """A shadow in front of a simulated device."""

    def __init__(self) -> None:
        super().__init__()
        self.shadow = Shadow(self.sim, self.hazards)

    def done(self) -> bool:
        run(self.clock)
        return self.shadow.check()


def test_free_pages_are_watched() -> None:
    one = Poisoned()
    one.shadow.freed(Tier.DEVICE, "full", pages(2, 3))
    one.shadow.freed(Tier.DEVICE, "full", pages())
    one.shadow.freed(Tier.HOST, "full", pages(5))
    assert one.hazards.checked == 2, "nothing is done to no page"
    touched = one.memory.claimed(DEVICE, pages(2, 3), ALL)
    assert len({*touched.ravel().tolist()}) == 2, "each page has a poison of its own"
    assert one.shadow.check(), "nothing is compared yet"
    found_out(
        lambda: one.shadow.touch(one.compute, Touch("full", pages(1, 3, 2), "r", ALL, "prefill")),
        HazardError,
        "read by 'prefill': expected pages that somebody has, found free device pages [3, 2] of "
        "full (2 in all)",
        "READ OF FREE",
    )
    one.shadow.touch(one.compute, Touch("full", pages(1), "r", ALL, "prefill"))
    one.sim.compute(one.compute, 50)
    one.shadow.touch(one.compute, Touch("full", pages(2), "w", ALL, "prefill of request 1"))
    assert not one.shadow.check(), "not run yet"
    assert one.done()
    assert (one.shadow.intact, one.shadow.spoiled) == (1, 0)
    one.shadow.touch(one.compute, Touch("full", pages(2), "r", ALL, "it is in use now"))
    one.sim.compute(one.compute, 50)
    marks = one.shadow.sweep()
    assert len(marks) == 2
    assert not one.shadow.check()
    assert one.done()
    assert all(one.sim.reached_ns(mark) >= 0 for mark in marks)
    assert one.shadow.intact == 3
    assert one.shadow.check()
    assert one.shadow.intact == 3, "what was compared is not compared again"
    _copied()
    _spoiled()


def _copied() -> None:
    """A copy reads no free page, and the free page that it fills is compared first."""
    one = Poisoned()
    one.shadow.freed(Tier.DEVICE, "full", pages(2))
    one.shadow.freed(Tier.HOST, "full", pages(5))
    found_out(
        lambda: one.shadow.copy(one.write, CopyJob(D2H, "full", pages(2), pages(1), ALL, "backup")),
        HazardError,
        "read by 'backup': expected pages that somebody has, found free device pages [2]",
        "READ OF FREE",
    )
    run(one.clock)
    one.shadow.copy(one.write, CopyJob(D2H, "full", pages(1), pages(5), ALL, "backup"))
    assert one.done()
    assert one.shadow.intact == 1
    spoiled = Poisoned()
    spoiled.sim.compute(spoiled.load, 9)
    spoiled.shadow.copy(spoiled.load, CopyJob(H2D, "full", pages(1), pages(2), ALL, "load"))
    run(spoiled.clock)
    assert spoiled.memory.checked == 2, "the target was spoiled, and then copied"


def _spoiled() -> None:
    """Somebody writes into a free page: found when it is used next, and by the sweep."""
    for sweeps, tier in ((True, Tier.DEVICE), (False, Tier.DEVICE), (True, Tier.HOST)):
        one = Poisoned()
        one.shadow.freed(tier, "full", pages(1, 4))
        run(one.clock)
        area = Area(tier, "full", pages(4), (1, 2))
        one.sim.scribble(one.compute, area, np.array([3], dtype=np.uint64))
        run(one.clock)
        if sweeps:
            one.shadow.sweep()
            why = "the sweep"
        else:
            one.shadow.touch(one.compute, Touch("full", pages(4), "w", ALL, "prefill"))
            why = "'prefill'"
        name = tier.name.lower()
        error = found_out(
            one.done,
            WrongBytesError,
            f"{name} page 4 of full was written while it was free; seen before {why}",
            "POISON",
        )
        assert error.about == (About("page", 4, int(tier), "full"),)
    late = Poisoned()  # a page that is freed while an unordered access still uses it
    late.hazards.access(late.load, Area(*DEVICE, pages(6), ALL), "w", "load of flight 3")
    found_out(
        lambda: late.shadow.freed(Tier.DEVICE, "full", pages(6)),
        HazardError,
        "write by 'poison of freed pages' on stream compute",
        "WAW",
    )
