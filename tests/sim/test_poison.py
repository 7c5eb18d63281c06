"""The poison of free pages and the spoiled targets of loads (sim/device/shadow)."""

from __future__ import annotations

import numpy as np
import pytest

from hicache.core.errors import About
from hicache.core.types import Tier
from hicache.devices.base import Area, CopyJob, Touch
from sim.device.shadow import Shadow
from sim.errors import HazardError, WrongBytesError
from tests.tiny import pages

from .clocks import run
from .found_out import found_out
from .test_bytes import ALL, D2H, DEVICE, H2D, Bench

FREE = "expected pages that somebody has, found free device pages"


class Poisoned(Bench):
    """A shadow in front of a simulated device."""

    def __init__(self) -> None:
        super().__init__()
        self.shadow = Shadow(self.sim, self.hazards)

    def done(self) -> bool:
        run(self.clock)
        return self.shadow.check()


def test_a_free_page_is_not_read_and_is_compared_when_it_is_used_or_swept() -> None:
    one = Poisoned()
    one.shadow.freed(Tier.DEVICE, "full", pages(2, 3))
    one.shadow.freed(Tier.HOST, "full", pages(5))
    touched = one.memory.claimed(DEVICE, pages(2, 3), ALL)
    assert len({*touched.ravel().tolist()}) == 2, "each page has a poison of its own"
    read = Touch("full", pages(1, 3, 2), "r", ALL, "prefill")
    backup = CopyJob(D2H, "full", pages(2), pages(1), ALL, "backup")
    for work, numbers in (
        (lambda: one.shadow.touch(one.compute, read), "[3, 2]"),
        (lambda: one.shadow.copy(one.write, backup), "[2]"),
    ):
        found_out(work, HazardError, f"{FREE} {numbers} of full", "READ OF FREE")
    one.sim.compute(one.compute, 50)
    one.shadow.touch(one.compute, Touch("full", pages(2), "w", ALL, "prefill of request 1"))
    assert not one.shadow.check(), "not run yet"
    assert one.done()
    assert (one.shadow.intact, one.shadow.spoiled) == (1, 0)
    one.shadow.touch(one.compute, Touch("full", pages(2), "r", ALL, "it is in use now"))
    one.shadow.copy(one.write, CopyJob(D2H, "full", pages(1), pages(5), ALL, "backup"))
    assert one.done()
    assert one.shadow.intact == 2
    one.shadow.sweep()
    assert one.done()
    assert one.shadow.intact == 3, "what was compared is not compared again"


def test_the_target_of_a_load_is_spoiled_before() -> None:
    one = Poisoned()
    one.sim.compute(one.load, 9)
    one.shadow.copy(one.load, CopyJob(H2D, "full", pages(1), pages(2), ALL, "load"))
    run(one.clock)
    assert one.memory.checked == 2, "the target was spoiled, and then copied"


@pytest.mark.parametrize(("sweeps", "tier"), [(True, Tier.HOST), (False, Tier.DEVICE)])
def test_a_write_to_a_free_page_is_found(sweeps: bool, tier: Tier) -> None:
    """When it is used next, or by the sweep."""
    one = Poisoned()
    one.shadow.freed(tier, "full", pages(1, 4))
    run(one.clock)
    area = Area(tier, "full", pages(4), (1, 2))
    one.sim.scribble(one.compute, area, np.array([3], dtype=np.uint64))
    run(one.clock)
    if sweeps:
        one.shadow.sweep()
    else:
        one.shadow.touch(one.compute, Touch("full", pages(4), "w", ALL, "prefill"))
    words = f"{tier.name.lower()} page 4 of full was written while it was free"
    error = found_out(one.done, WrongBytesError, words, "POISON")
    assert error.about == (About("page", 4, int(tier), "full"),)


def test_a_page_that_is_freed_while_an_unordered_access_uses_it_is_found() -> None:
    one = Poisoned()
    one.hazards.access(one.load, Area(*DEVICE, pages(6), ALL), "w", "load of flight 3")
    words = "write by 'poison of freed pages' on stream compute"
    found_out(lambda: one.shadow.freed(Tier.DEVICE, "full", pages(6)), HazardError, words, "WAW")
