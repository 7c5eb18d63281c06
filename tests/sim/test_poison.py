"""The poison of free pages and the spoiled targets of loads (sim/device/guard)."""

import numpy as np
import pytest

from hicache.core.errors import About
from hicache.core.types import Tier
from hicache.devices.base import Access, Area, CopyJob
from sim.device.guard import Guard
from sim.errors import HazardError, WrongBytesError
from tests.tiny import pages

from .clocks import run
from .found_out import found_out
from .test_bytes import ALL, D2H, DEVICE, H2D, Bench

FREE = "expected pages that somebody has, found free device pages"


class Poisoned(Bench):
    """A guard in front of a simulated device."""

    def __init__(self) -> None:
        super().__init__()
        self.guard = Guard(self.sim, self.hazards)

    def done(self) -> bool:
        run(self.clock)
        return self.guard.check()


def test_a_free_page_is_not_read_and_is_compared_when_it_is_used_or_swept() -> None:
    item = Poisoned()
    item.guard.freed(Tier.DEVICE, "full", pages(2, 3))
    item.guard.freed(Tier.HOST, "full", pages(5))
    touched = item.memory.claimed(DEVICE, pages(2, 3), ALL)
    assert len({*touched.ravel().tolist()}) == 2, "each page has a poison of its own"
    read = Access("full", pages(1, 3, 2), "r", ALL, "prefill")
    backup = CopyJob(D2H, "full", pages(2), pages(1), ALL, "backup")
    for work, numbers in (
        (lambda: item.guard.access(item.compute, read), "[3, 2]"),
        (lambda: item.guard.copy(item.write, backup), "[2]"),
    ):
        found_out(work, HazardError, f"{FREE} {numbers} of full", "READ OF FREE")
    item.sim.compute(item.compute, 50)
    item.guard.access(item.compute, Access("full", pages(2), "w", ALL, "prefill of request 1"))
    assert not item.guard.check(), "not run yet"
    assert item.done()
    assert (item.guard.intact, item.guard.spoiled) == (1, 0)
    item.guard.access(item.compute, Access("full", pages(2), "r", ALL, "it is in use now"))
    item.guard.copy(item.write, CopyJob(D2H, "full", pages(1), pages(5), ALL, "backup"))
    assert item.done()
    assert item.guard.intact == 2
    item.guard.sweep()
    assert item.done()
    assert item.guard.intact == 3, "what was compared is not compared again"


def test_the_target_of_a_load_is_spoiled_before() -> None:
    item = Poisoned()
    item.sim.compute(item.load, 9)
    item.guard.copy(item.load, CopyJob(H2D, "full", pages(1), pages(2), ALL, "load"))
    run(item.clock)
    assert item.memory.checked == 2, "the target was spoiled, and then copied"


@pytest.mark.parametrize(("sweeps", "tier"), [(True, Tier.HOST), (False, Tier.DEVICE)])
def test_a_write_to_a_free_page_is_found(sweeps: bool, tier: Tier) -> None:
    """When it is used next, or by the sweep."""
    item = Poisoned()
    item.guard.freed(tier, "full", pages(1, 4))
    run(item.clock)
    area = Area(tier, "full", pages(4), (1, 2))
    item.sim.write_pattern(item.compute, area, np.array([3], dtype=np.uint64))
    run(item.clock)
    if sweeps:
        item.guard.sweep()
    else:
        item.guard.access(item.compute, Access("full", pages(4), "w", ALL, "prefill"))
    words = f"{tier.name.lower()} page 4 of full was written while it was free"
    error = found_out(item.done, WrongBytesError, words, "POISON")
    assert error.about == (About("page", 4, int(tier), "full"),)


def test_a_page_that_is_freed_while_an_unordered_access_uses_it_is_found() -> None:
    item = Poisoned()
    item.hazards.access(item.load, Area(*DEVICE, pages(6), ALL), "w", "load of transfer 3")
    words = "write by 'poison of freed pages' on stream compute"
    found_out(lambda: item.guard.freed(Tier.DEVICE, "full", pages(6)), HazardError, words, "WAW")
