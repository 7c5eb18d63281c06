"""Edges that no recorded sequence reaches: keys, queues, pins and exchanges over a flush, passes in
transfer, the caller's mistakes; splits, which forget nothing; the ledger's own asserts;
and records that `Core.validate` finds wrong."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from hicache.core import lru
from hicache.core.actions import Backup, Granted, Load, Matched, Pinned, Prefill
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError, CoreBug
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    MatchWanted,
    PagesWanted,
    PinWanted,
    PrefillDone,
)
from hicache.core.eviction_policies import Fifo
from hicache.core.ledger import Pool
from hicache.core.lru import Queue, next_victim, offer
from hicache.core.node import Node
from hicache.core.state import State, enqueue
from hicache.core.tree import split, truncate
from hicache.core.types import BACKBONE, DEVICE, MANY_ROWS, Key, PageState, Tier, kept_rows

from .rig import PAGE, Rig, hybrid, key, tokens


def test_contract_violations_are_refused_before_anything_changes() -> None:
    rig = Rig()
    _, prefill = rig.begin(0, "abcd", chunk=8)
    rig.feed(PrefillDone(prefill.transfer))
    other = Key.from_tokens(range(32), 8)
    for event, message in (
        (Finished(0, key("abcd"), 16), "at most the 8 tokens"),
        (Finished(0, Key(other.raw[:64], 64), 8), "no longer starts with|expected 2 to"),
        (EvictWanted(Tier.STORAGE, "full", 1), "on device or host"),
        (Arrived(5, Key(b"", 0), 4, 0), "8-byte words"),
        (Arrived(5, Key(b"abcd", 4), 4, 1), "8-byte words"),
        (Arrived(5, key("a")._replace(namespace="\ud800"), 4, 1), "UTF-8"),
    ):
        with pytest.raises(CallerError, match=message):
            rig.feed(event)
    assert 5 not in rig.view.requests
    with pytest.raises(CallerError, match="each once"):
        Config(4, (4, 4), (0, 0), components=("full", "full"))


def test_bigram_keys_are_one_position_shorter() -> None:
    assert Key.from_tokens(tokens("ab"), PAGE, bigram=True).pages == 1
    assert Key.from_tokens(tokens("ab")[:1], PAGE, bigram=True).pages == 0
    item = Key.from_tokens([1, 2, 3, 4, 5], PAGE, bigram=True)
    other = Key.from_tokens([1, 2, 3, 4, 6], PAGE, bigram=True)
    assert item.raw != other.raw, "the last pair reaches into the next page"


def test_a_request_does_not_grow_before_its_prompt_is_computed() -> None:
    rig = hybrid("full,swa", (32, 16))
    rig.arrive(0, "abcd")
    rig.settle(rig.admit(0, 2 * PAGE))
    with pytest.raises(
        CallerError, match=r"request 0: expected growth after the whole prompt is computed"
    ):
        rig.feed(PagesWanted(0, 6 * PAGE))
    rig.settle(rig.feed(ContinueWanted(0, 2 * PAGE)))
    assert rig.single(Granted, rig.feed(PagesWanted(0, 6 * PAGE))).tables[1].min() >= -1


def test_queues_do_not_keep_dead_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue of duplicates is never evicted from here; it would remember every node."""
    monkeypatch.setattr(lru, "LEAST_SWEPT", 64)
    rig = Rig(device=4, host=8)
    for request in range(200):
        rig.run(request, chr(0x100 + request) * 2)
    live = sum(1 for _ in rig.view.nodes())
    assert live < 10
    assert all(len(rig.view.queue_entries(part)) <= 64 for part in range(6))


class Alike(Fifo):
    def rank(self, node: Node, component: int) -> int:
        return 0


def test_of_nodes_alike_the_deepest_goes_first_as_it_is_now() -> None:
    """Not as it was when it was queued."""
    rig = Rig(device=(16,))
    for request, text in enumerate(("abcd", "xyz")):
        rig.arrive(request, text)
        rig.settle(rig.admit(request))
        rig.finish(request, text)
    queue = Queue(BACKBONE, DEVICE, 1)
    nodes = [*rig.view.nodes()]
    for node in nodes:
        node.queued = 0
        offer([[queue]], Alike(), node, DEVICE, BACKBONE)
    [cut] = [node for node in nodes if node.end_page == 4]
    truncate(rig.core._state, cut, DEVICE, 2)
    next_victims = [next_victim([queue], Alike()) for _ in nodes]
    assert [node.end_page for node in next_victims if node is not None] == [3, 2]


@pytest.mark.parametrize("priority", [(1 << 31) + 1, -(1 << 31) - 1])
def test_a_priority_beyond_all_bounds_is_refused(priority: int) -> None:
    rig = Rig(device=(16,))
    with pytest.raises(CallerError, match="priority: expected"):
        rig.feed(Arrived(0, Key.from_tokens(range(8), 4), 8, 1, priority))


def test_a_flush_during_an_exchange_takes_its_promise_back() -> None:
    core = Core(Config(1, (8,), (8,), write_policy="write_back", exchange_pages=(4,)))
    key = Key.from_tokens([1, 2, 3], 1)

    def transfer_of(event: Event, kind: type) -> int:
        (result,) = (item for item in core.handle(event) if isinstance(item, kind))
        return int(result.transfer)

    core.handle(Arrived(0, key, 3, 2))
    core.handle(PrefillDone(transfer_of(AdmitWanted(0, 3), Prefill)))
    core.handle(Finished(0, key, 3))
    core.handle(BackupDone(transfer_of(EvictWanted(Tier.DEVICE, "full", 3), Backup)))
    core.handle(EvictWanted(Tier.DEVICE, "full", 3))
    core.handle(Arrived(1, key, 3, 2))
    outcomes = core.handle(AdmitWanted(1, 3))
    (load,) = (outcome.transfer for outcome in outcomes if isinstance(outcome, Load))
    (prefill,) = (outcome.transfer for outcome in outcomes if isinstance(outcome, Prefill))
    assert core.view.giving_up() == 2
    core.handle(Aborted(1))
    core.handle(PrefillDone(prefill))
    core.handle(Flushed())
    core.handle(LoadDone(load))
    assert core.view.giving_up() == 0


def test_a_pin_takes_hold_of_what_comes_later_and_after_a_flush() -> None:
    rig = Rig(device=16, pin_pages=(4,))
    assert rig.feed(PinWanted(1, key("abc"))) == [Pinned(1, 0)]
    for request in range(2):
        rig.run(request, "abcd")
        assert rig.view.pins[1].held_pages == 3
        assert [len(evicted.pages) for evicted in rig.evict("full", 16)] == [1]
        rig.feed(Flushed())
        assert rig.view.pins[1].held_pages == 0
        assert rig.device.free == 16


def ends(rig: Rig, prefill: Prefill) -> list[object]:
    return list(rig.feed(PrefillDone(prefill.transfer)))


def test_no_more_passes_begin_than_the_configuration_allows() -> None:
    rig = Rig(device=8, passes=2)
    _, first = rig.begin(0, "abcdef", chunk=PAGE)
    second = rig.continue_prefill(0, PAGE)
    with pytest.raises(CallerError, match="fewer than 2 passes in flight, found 2"):
        rig.feed(ContinueWanted(0, PAGE))
    ends(rig, first)
    rig.continue_prefill(0, 100)
    ends(rig, second)
    with pytest.raises(CallerError, match="its prompt of 24 is computed"):
        rig.feed(ContinueWanted(0, PAGE))


def test_passes_of_a_request_end_in_order_also_when_it_is_gone() -> None:
    rig = Rig(device=8, passes=2)
    _, first = rig.begin(0, "abcdef", chunk=PAGE)
    second = rig.continue_prefill(0, PAGE)
    for _ in range(2):
        with pytest.raises(CallerError, match=f"reply to transfer {first.transfer} first"):
            ends(rig, second)
        if 0 in rig.view.requests:
            rig.feed(Aborted(0))
    ends(rig, first)
    assert rig.device.counts[PageState.RETIRING] == 6  # the second pass still uses them
    ends(rig, second)
    assert rig.device.free == 8


INHERITED = {
    *("hits", "priority", "inserted", "last_use", "host_refused"),
    *("store_failures", "store_place", "stored_since"),
}


def remembers(holder: Node, names: set[str]) -> None:
    """Gives each of these facts a value that no other has."""
    for number, name in enumerate(sorted(names), start=100):
        before = getattr(holder, name)
        setattr(holder, name, [number] * len(before) if isinstance(before, list) else number)


def alike(upper: Node, lower: Node, names: set[str]) -> None:
    for name in names:
        item, other = getattr(upper, name), getattr(lower, name)
        assert item == other, name
        assert not isinstance(item, list) or item is not other, f"{name} belongs to both halves"


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_split_forgets_nothing(at: int) -> None:
    rig = Rig(16, 16, storage=True)
    rig.run(1, "abcd")
    state = rig.core._state
    [node] = state.root.children.values()
    enqueue(state, node)
    remembers(node, INHERITED - {"store_place", "stored_since"})
    upper = split(state, node, at)
    alike(upper, node, INHERITED)
    assert upper.key + node.key == key("abcd").raw
    assert (upper.end_page, node.end_page) == (at, 4)


@pytest.mark.parametrize(
    ("start", "stop", "shared"), [(0, 4, True), (1, 3, True), (3, 4, False), (0, 0, False)]
)
def test_a_view_keeps_at_most_twice_its_rows_in_memory(start: int, stop: int, shared: bool) -> None:
    raw = bytes(range(256)) * (MANY_ROWS // 64)
    begin, end = start * MANY_ROWS, stop * MANY_ROWS
    for rows in (raw, memoryview(raw)):
        result = kept_rows(rows, begin, end)
        assert result == raw[begin:end]
        assert isinstance(result, memoryview) is shared
    assert isinstance(kept_rows(kept_rows(raw, 0, len(raw)), 0, MANY_ROWS), bytes)
    assert isinstance(kept_rows(raw[:MANY_ROWS], 0, MANY_ROWS - 8), bytes)
    half = memoryview(raw)[: 2 * MANY_ROWS]  # keeps all of `raw`
    assert isinstance(kept_rows(half, 0, 3 * MANY_ROWS // 2), bytes)


def test_no_page_is_taken_cached_or_given_back_twice() -> None:
    pool = Pool(Tier.DEVICE, "full", 6)
    pages = pool.take(4, 1)
    assert sorted([*pages.tolist(), *pool.free_pages().tolist()]) == list(range(6))
    with pytest.raises(CoreBug):
        pool.take(3, 2)
    pool.cache(pages, 7)
    with pytest.raises(CoreBug):
        pool.cache(pages, 7)
    pool.give_back(pages)
    with pytest.raises(CoreBug, match="double free"):
        pool.give_back(pages)
    assert pool.free == 6


def test_pages_on_loan_are_free_with_the_last_loan() -> None:
    pool = Pool(Tier.HOST, "full", 6)
    pages = pool.take(2, 1)
    generation = pool.generation.copy()
    for _ in range(2):
        pool.lend(pages)
    pool.give_back(pages)
    assert pool.counts[PageState.RETIRING] == 2
    pool.repay(pages)
    assert pool.free == 4
    assert (pool.generation == generation).all()
    pool.repay(pages)
    assert pool.free == 6
    assert np.flatnonzero(pool.generation - generation).tolist() == sorted(pages.tolist())
    with pytest.raises(CoreBug, match="repaid twice"):
        pool.repay(pages)


def test_pages_of_several_owners_go_back_at_once() -> None:
    pool = Pool(Tier.HOST, "full", 6)
    owned, reserved = pool.take(2, 1), pool.reserve(2, 9)
    pool.cache(owned, 3)
    pool.give_back(np.concatenate((owned, reserved)))
    assert pool.counts == [6, 0, 0, 0, 0]


def serve(core: Core, request: int, tokens: Any) -> None:
    key, length = Key.from_tokens(tokens, 1), len(tokens)
    core.handle(Arrived(request, key, length, length - 1))
    prefill = core.handle(AdmitWanted(request, length))[-1]
    assert isinstance(prefill, Prefill)
    core.handle(PrefillDone(prefill.transfer))
    core.handle(Finished(request, key, length))


def lines_per_node(nodes: int) -> float:
    """Lines of the core that run when a path of this many nodes of two pages is asked for again."""
    core = Core(Config(page_size=1, device_pages=(4 * nodes,)))
    tokens = np.arange(2 * nodes)
    serve(core, 0, tokens)
    for request in range(1, nodes):  # each branches off, so that the path has one node more
        serve(core, request, np.append(tokens[: 2 * (nodes - request)], -request))
    assert sum(1 for _ in core.view.nodes()) == 2 * nodes - 1
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if "hicache" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        serve(core, nodes, tokens)
    finally:
        sys.settrace(before)
    return lines / nodes


def test_the_steps_for_each_node_of_a_path_do_not_grow() -> None:
    short, long = lines_per_node(100), lines_per_node(800)
    assert 10 < long < 1.05 * short


@pytest.mark.parametrize("shared", [1, 4095, 4096, 4097, 9000, 9999])
def test_a_long_run_is_reused_up_to_the_page_that_differs(shared: int) -> None:
    """Of a run of 10,000 words, which are compared some thousands at once."""
    core = Core(Config(page_size=1, device_pages=(20_001,)))
    tokens = np.arange(10_000)
    serve(core, 0, tokens)
    tokens[shared] = -1
    core.handle(Arrived(1, Key.from_tokens(tokens, 1), len(tokens), len(tokens) - 1))
    (prefill,) = core.handle(MatchWanted(1))
    assert isinstance(prefill, Matched)
    assert prefill.device_pages == shared


def _node(state: State) -> Node:
    return next(iter(state.root.children.values()))


def _end(state: State) -> None:
    _node(state).end_page += 1


def _count(state: State) -> None:
    _node(state).with_pages = (3, 0)


def _owner(state: State) -> None:
    state.pools[DEVICE][0].owner[_node(state).pages[DEVICE][0]] = 77


def _state(state: State) -> None:
    state.pools[DEVICE][0].state[_node(state).pages[DEVICE][0]] = 1


def _counted(state: State) -> None:
    state.pools[DEVICE][0].counts[0] += 1


def _protected(state: State) -> None:
    state.pools[DEVICE][0].protected += 1


def _loan(state: State) -> None:
    state.pools[DEVICE][0].loans[0] += 1


def _queue(state: State) -> None:
    state.queues[0][DEVICE].heaps[0].clear()


def _unlisted(state: State) -> None:
    for locked in state.running[1].receipt.locked:  # type: ignore[union-attr]
        locked.clear()


def _unlocked(state: State) -> None:
    for node in state.root.children.values():
        for holders in node.locks[DEVICE]:
            holders.clear()


@pytest.mark.parametrize(
    "fault",
    [_end, _count, _owner, _state, _counted, _protected, _loan, _queue, _unlisted, _unlocked],
)
def test_a_wrong_record_is_found(fault: Callable[[State], None]) -> None:
    rig = Rig(16)
    rig.run(0, "wxyz")
    rig.run(2, "abcd")
    rig.begin(1, "wxyz0")
    rig.core.validate()
    fault(rig.core._state)
    with pytest.raises(CoreBug, match="the state is not valid"):
        rig.core.validate()
