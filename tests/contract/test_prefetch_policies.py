"""Every policy in hicache/core/prefetch_policies, and others that could be there: what it declares
is all that the core asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hicache import registry
from hicache.core.actions import Abandoned, Admitted, Prefetched, Refused
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import PrefetchLimitReached
from tests.core.rig import Rig

NAMES = registry.stems(registry.PREFETCH_POLICIES)


@pytest.fixture
def another(request: pytest.FixtureRequest) -> Iterator[str]:
    """A policy that no file of the folder defines."""
    policy = SimpleNamespace(name="another", waits=request.param, limited=False)
    registry.add(registry.PREFETCH_POLICIES, "another", lambda: policy)
    yield "another"
    registry.remove(registry.PREFETCH_POLICIES, "another")


@pytest.mark.parametrize("name", NAMES)
def test_an_admission_waits_if_the_policy_says_so(name: str) -> None:
    policy = Core(Config(1, (4,), prefetch_policy=name)).view.prefetching
    assert policy.name == name
    assert policy.waits or not policy.limited, "there is no wait to limit"
    keeps_to(name)


@pytest.mark.parametrize("another", [False, True], indirect=True)
def test_a_policy_from_elsewhere_is_treated_the_same(another: str) -> None:
    keeps_to(another)


def keeps_to(name: str) -> None:
    rig = Rig(8, 8, storage=True, prefetch_policy=name)
    lookup = rig.lookup(1, "ab")
    outcomes = rig.admit(1)
    ended = [Prefetched(1, 0, 2, 0, 0, "late"), Abandoned(lookup.flight)]
    if rig.view.prefetching.waits:
        assert rig.one(Refused, outcomes).reason == "fetching"
        assert rig.feed(PrefetchLimitReached(1)) == ended
        outcomes = rig.admit(1)
    else:
        assert outcomes[:2] == ended
    rig.one(Admitted, outcomes)
