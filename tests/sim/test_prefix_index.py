"""What a router remembers of its replicas' pages when it may not remember all of them."""

from __future__ import annotations

from hicache.core.types import Tier
from sim.fleet.routers.prefix_aware import PrefixIndex

_HOT = (b"system", b"prompt", b"tail")


def test_the_pages_of_a_prefix_that_requests_look_for_stay() -> None:
    index = PrefixIndex(2, 6)
    index.stored(0, Tier.DEVICE, _HOT)
    for turn in range(20):
        assert index.leading([*_HOT, b"new %d" % turn]) == [3, 0]
        index.stored(1, Tier.DEVICE, [b"once %d" % turn])
    assert (len(index), index.dropped) == (6, 17)


def test_a_known_page_that_is_stored_again_is_as_new_as_the_others() -> None:
    index = PrefixIndex(2, 4)
    index.stored(0, Tier.DEVICE, _HOT)
    index.stored(1, Tier.DEVICE, [b"once"])
    index.stored(1, Tier.DEVICE, _HOT)
    index.stored(1, Tier.DEVICE, [b"again"])
    assert index.leading(_HOT) == [3, 3]


def test_of_one_prefix_the_last_pages_go_first() -> None:
    index = PrefixIndex(1, 2)
    index.stored(0, Tier.DEVICE, _HOT)
    assert index.leading(_HOT) == [2]
    index.removed(0, Tier.DEVICE, _HOT[1:])
    assert index.leading(_HOT) == [1]
