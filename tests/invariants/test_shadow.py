"""The shadow state of the checks: equal to a recount, and what they say of single records."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hicache.core import (
    admission,
    core,
    eviction,
    eviction_policies,
    lru,
    pins,
    placement,
    prefetch,
    tree,
)
from hicache.core.actions import Backup, Copy
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.types import Key, Tier
from invariants.base import HARNESS, CheckFailed
from invariants.checker import Checker
from invariants.checks.ends import LockBalance
from invariants.checks.requests import PeerMap
from invariants.checks.transfers import HappensBeforeWrite
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import sample_config
from invariants.shadow import nodes
from invariants.shadow.pages import NODE, REQUEST, TRANSFER, PageShadow, code_of
from invariants.shadow.pins import lock
from invariants.shadow.record import NodeRecord
from invariants.shadow.shadow import Shadow
from invariants.shadow.tags import digests_of, tags_of
from invariants.shadow.transfers import Move
from tests.tiny import configured

from .life import Life, corner


def failures(
    seeds: Iterable[int], checks: tuple[str, ...] | None, others: tuple[str, ...] = ("swa", "mamba")
) -> list[tuple[int, str]]:
    result = []
    for seed in seeds:
        sample = sample_config(seed, ("full", *others))
        failure = play.generate(sample, 60 if others else 200, checks=checks).failure
        if failure is not None:
            result.append((failure.code, failure.kind))
    return result


def test_sampled_checks_find_a_leak() -> None:
    life = Life(sample_config(4), Checker("sampled"))
    while not life.player.past or not life.core.view.pool(Tier.DEVICE, 0).free:
        life.run(1)
    life.core._state.pools[0][0].take(1, 7)
    with pytest.raises(AssertionError, match="POOL-SUM"):
        life.checker.audit(life.core.view)


FORGETTING: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "a page": (PageShadow, "retract", lambda old: lambda its, pages, by: old(its, pages[:-1], by)),
    "a candidate": (nodes, "candidacy", lambda original: lambda record, kinds: record.candidate),
}


@pytest.mark.parametrize("name", FORGETTING)
def test_incomplete_shadow_is_a_harness_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrong = FORGETTING[name]
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
    result = failures(range(2, 8), ())
    assert (HARNESS, "AUDIT") in result
    assert {code for code, _ in result} == {HARNESS}


IN_LARGE: list[tuple[str, Any, str, Callable[[Any], Any]]] = [
    ("LRU", lru, "heapify", lambda old: list.reverse),
    ("LRU", lru, "_sweep", lambda old: lambda queue, part: queue.heaps[part].clear()),
    ("DEAD-LEAF", eviction, "delete", lambda old: lambda *of: (old(*of), of[0].dead.clear())),
    ("METRIC-REF", tree, "anchors", lambda old: lambda *of: (old(*of)[1], *old(*of)[1:])),
    ("ANCHOR", admission, "note_decoded", lambda old: lambda *of: old(*of[:2], of[1].length)),
    (
        "COLDEST",
        eviction,
        "_evict_leaf",
        lambda old: lambda *of: old(*of[:3], len(of[1].key) // of[0].stride),
    ),
    ("LRU", eviction_policies, "TICK_BITS", lambda old: 1),
    (
        "METRIC-REF",
        placement,
        "_admit",
        lambda old: lambda *of: (setattr(of[1], "branch_pages", 0), old(*of)),
    ),
    ("LRU", pins, "_due", lambda old: lambda *of: old(*of)[:1]),
    (
        "PREF-ACC",
        prefetch,
        "_budget_left",
        lambda old: lambda *of: old(*of) and 2 * of[0].config.page_size,
    ),
    ("PREF-ACC", prefetch, "_shortened", lambda old: lambda *of: old(*of) - 1),
    ("LIVE-ACK", core, "loaded_nodes", lambda old: lambda *of: old(*of)[:1]),
    (
        *("PROGRESS", eviction, "next_victim"),
        lambda old: lambda *of: None if of[0][0].heaps[0][2:] else old(*of),
    ),
]


@pytest.mark.parametrize(("law", "owner", "attribute", "wrong"), IN_LARGE)
def test_what_goes_wrong_in_a_large_cache_is_found(
    law: str, owner: Any, attribute: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where queues are swept, and much is evicted at once."""
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
    of_one = failures((0, 10, 12), (law.lower(),), ())
    assert law in {kind for _, kind in of_one or failures(range(3), (law.lower(),))}


def test_a_victim_is_no_warmer_than_what_copies_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes with a node above it, as of seed 21, passes over nothing."""
    assert not failures((21, 59), ("coldest",), ())
    monkeypatch.setattr(eviction, "_floor", lambda state: None)
    assert "COLDEST" in {kind for _, kind in failures((59,), ("coldest",), ())}


@pytest.mark.parametrize("hybrid", [False, True])
def test_what_is_known_of_a_prompt_is_what_nodes_have(hybrid: bool) -> None:
    """Also the tags and digests of nodes, which are taken from prompts, or computed late."""
    several = {"components": ("full", "swa", "mamba"), "swa_window": 6, "mamba_interval": 4}
    width = 3 if hybrid else 1
    config = configured(4, (80,) * width, (160,) * width, **(several if hybrid else {}))
    life = Life(corner(config))
    seen = 0
    for _ in range(40):
        life.run(5)
        shadow = life.checker.shadow
        assert shadow is not None
        cached: set[int] = set()
        for record in shadow.nodes.by_id.values():
            path = shadow.nodes.path(record.id)[::-1]
            raw = b"".join(bytes(item.key) for item in path)
            key = Key(raw, shadow.nodes.stride, record.namespace)
            start = key.pages - record.span
            assert shadow.nodes.digests_of(record) == digests_of(key)[start:]
            tags = tags_of(key)[start:]
            assert record.tags.tolist() == tags.tolist()
            cached.update(tags.tolist())
        for req in shadow.requests.by_id.values():
            known = sum(tag in cached for tag in req.known.tolist())
            assert shadow.nodes.reach(req.known).known == known
            seen += known > 0
    assert seen > 10


@pytest.mark.parametrize("owner", [0, code_of(REQUEST, 3), code_of(TRANSFER, 3)])
def test_a_copy_of_a_page_without_node_pins_nothing_and_is_reported(owner: int) -> None:
    shadow = Shadow(Core(Config(1, (6,), (6,))).view)
    source, target = np.array([4]), np.array([2])
    shadow.device.owner[4] = owner
    action = Backup(9, (Copy("full", source, target),))
    transfer = shadow.transfers.record(action, (Move(0, source, target),), ())
    message = lock(transfer, shadow.transfers, shadow.nodes, shadow.requests)
    assert message == "transfer 9 reads page 4 of no node"
    assert (transfer.locks, transfer.path) == ([], 0)
    assert not shadow.device.locks.any()


SLOTS = ("device", "device swa", "host", "host swa")


def two_components() -> tuple[Any, Any]:
    """Shadow state in which node 9 has pages 0 and 1 of both components on device."""
    config = configured(1, (4, 4), (4, 4), components=("full", "swa"), swa_window=2)
    shadow = Shadow(Core(config).view)
    record = NodeRecord(9, 2)
    for slot in range(2):
        record.pages[slot] = pages = np.array([0, 1])
        shadow.pages[slot].claim(pages, code_of(NODE, 9))
    shadow.nodes.by_id[9] = record
    return shadow, record


@pytest.mark.parametrize("slot", [0, 1])
def test_pages_of_a_node_with_unequal_locks_are_found_in_every_pool(slot: int) -> None:
    """Also where the pool before has none."""
    shadow, _ = two_components()
    LockBalance().audit(shadow, shadow)
    shadow.pages[slot].locks[1] = 1
    with pytest.raises(CheckFailed, match=rf"node 9, {SLOTS[slot]}: .* 0 to 1 holders"):
        LockBalance().audit(shadow, shadow)


@pytest.mark.parametrize(("moved", "clashed"), [(True, False), (False, True), (False, False)])
def test_a_peer_of_another_owner_is_found_where_the_node_moved_or_pages_clash(
    moved: bool, clashed: bool
) -> None:
    shadow, record = two_components()
    record.moved = True
    node: Any = None
    PeerMap().node(shadow, record, node)
    shadow.pages[1].owner[1] = code_of(REQUEST, 3)
    record.moved, shadow.clashed = moved, clashed
    if not moved and not clashed:
        PeerMap().node(shadow, record, node)
        return
    with pytest.raises(CheckFailed, match="its peer device swa page 1 request 3's"):
        PeerMap().node(shadow, record, node)


def test_a_second_writer_of_a_host_page_is_found() -> None:
    """The bug of tests/planted that HB-WRITE finds writes to the device."""
    pool = SimpleNamespace(busy=np.ones(4, np.int32), where="host", component=0)
    pool.tier, pool.name = Tier.HOST, "full"
    moves = [SimpleNamespace(at=0, target=np.array([3]))]
    shadow: Any = SimpleNamespace(uses=[], moves=moves, passes_before=lambda item: [])
    shadow.pool, shadow.transfers = lambda *at: pool, SimpleNamespace(open={})
    unread: Any = None
    with pytest.raises(CheckFailed, match="transfer 1 writes host page 3: expected 0 unanswered"):
        HappensBeforeWrite().before(shadow, Backup(1, ()), unread)
