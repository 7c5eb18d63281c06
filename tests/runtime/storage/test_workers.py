"""Actions for storage on threads: what they count, and what a store that misbehaves cannot do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest

from hicache.core.actions import Delete, Fetch, Lookup, Store
from hicache.core.errors import CoreBug
from hicache.core.events import DeleteDone, FetchDone, LookupDone, StorageReply, StoreDone
from hicache.memory.layouts import LAYOUTS
from hicache.memory.pools import stored_pools
from hicache.runtime import storage
from hicache.runtime.driver import REPLY_TO
from hicache.runtime.storage import Rank, StorageExecutor
from hicache.storage.base import Status, Value, step
from tests.storage.memory_store import MemoryStore

from .rig import DIGESTS, SMALL, Bench, Gated, bench, piece, until


def lookup(transfer: int, number: int, known: int = 0) -> Lookup:
    return Lookup(transfer, 0, 0, DIGESTS[:number], known, (0, 2, 1))


# -- stores that hang


def test_a_call_on_which_bytes_flow_is_waited_for() -> None:
    """However long it takes; once it has ended, what it left behind is no progress of others."""

    class Flowing(MemoryStore):
        def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
            for _ in range(3):
                item.clock.now += SMALL.call_s
                early.extend(item.workers.poll())
                step()
            left.append(copy_context())
            return super().read(keys, values)

        def lookup(self, keys: Sequence[str]) -> list[bool | None]:
            if left:
                item.clock.now += SMALL.call_s + 1
                left[0].run(step)
                early.extend(item.workers.poll())
            return super().lookup(keys)

    early: list[StorageReply] = []
    left: list[Context] = []
    with bench(Flowing(), options=replace(SMALL, readers=1)) as item:
        item.store_path(4)
        assert item.done(item.fetch_path(4)) == [FetchDone(2, 4)]
        assert early == []
        item.workers.begin([lookup(7, 4)])
        until(lambda: early == [LookupDone(7, 0)])


def test_a_queue_behind_threads_that_all_hang_is_answered_at_once() -> None:
    with bench(Gated("lookup")) as item:
        hanging = [lookup(transfer, 2) for transfer in range(SMALL.readers)]
        item.workers.begin(hanging)
        for _ in hanging:
            item.store.came_in()
        item.workers.begin([lookup(8, 2), item.fetch_path(4, transfer=9)])
        assert item.workers.poll() == []
        item.clock.now += SMALL.call_s + 1
        assert {reply.transfer for reply in item.workers.poll()} == {0, 1, 8, 9}
        item.workers.begin([lookup(10, 2)])
        assert item.workers.poll() == [LookupDone(10, 0)]
        assert item.store_path(4) == StoreDone(1, 7), "stores have threads of their own"
        item.store.gate.set()
        until(lambda: item.done(lookup(11, 4)) == [LookupDone(11, 4)])  # a thread is back


def test_answers_of_closed_threads_are_not_lost_with_them() -> None:
    with bench(Gated("lookup")) as item:
        executor = StorageExecutor()
        executor.use(item.workers)
        executor.submit(lookup(1, 2))
        executor.start()
        item.workers.close()
        executor.use(item.workers)
        assert executor.poll() == [LookupDone(1, 0)]


# -- delete


def test_a_delete_comes_behind_every_store_before_it_and_spares_other_caches() -> None:
    with bench(Gated()) as item:
        item.store_path(6)
        item.store.values["other/full/0of1/00"] = b"kept"
        item.store.kinds = {"write"}
        first, second = (Store(n, (piece("full", n, n),)) for n in (5, 7))
        item.workers.begin([first, Delete(6), second])
        item.store.came_in()
        assert item.workers.poll() == []
        item.store.gate.set()
        answers = item.answers(3)
        expected = {StoreDone(5, 1), DeleteDone(6, True), StoreDone(7, 1)}
        assert len(answers) == 3
        assert {*answers} == expected
        left = {key.rpartition("/")[2] for key in item.store.values}
        assert left == {"00", "context", DIGESTS[7].hex()}


def test_a_delete_does_not_wait_for_a_store_that_hangs() -> None:
    """It may end while the store is told what hangs: the next poll has its answer."""

    class Notified(Gated):
        def poll(self) -> int:
            until(lambda: 6 not in item.workers._open)
            return 0

    with bench(Notified("write")) as item:
        item.workers.begin([Store(5, (piece("full", 5, 5),)), Delete(6)])
        item.store.came_in()
        item.clock.now += SMALL.call_s + 1
        assert [item.workers.poll() for _ in "12"] == [[StoreDone(5, 0)], [DeleteDone(6, True)]]


def test_a_defect_of_this_project_is_not_taken_for_one_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(storage, "look_up", fail)
    with bench() as item:
        item.workers.begin([lookup(1, 2)])
        with pytest.raises(CoreBug, match=r"a thread for storage failed: .*a defect"):
            item.answers()


class Partial(Gated):
    """Fails for some keys, and hangs in a call. arrived: keys whose bytes were moved."""

    def __init__(self) -> None:
        super().__init__("read", "write")
        self.bad: dict[str, Status] = {}
        self.arrived: set[str] = set()
        self.calls_left = -1

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        self.keys += keys
        return self._move(keys, values, MemoryStore.read)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        self.keys += keys
        return self._move(keys, values, MemoryStore.write)

    def _move(self, keys: Sequence[str], values: Sequence[Value], move: Any) -> list[Status]:
        self.calls_left -= not keys[0].endswith("/context")
        if self.calls_left == 0 and not keys[0].endswith("/context"):
            self._pass("read")
        statuses = move(self, keys, values)
        fine = [self.bad.get(*pair) for pair in zip(keys, statuses, strict=True)]
        self.arrived |= {key for key, how in zip(keys, fine, strict=True) if how is Status.DONE}
        return fine


def pages_of(rank: Rank, action: Store | Fetch, context: str) -> list[tuple[Any, ...]]:
    """The depth, component, host page and keys of each page of an action."""
    end = f"-{rank.stage}of{rank.stages}" if rank.stages > 1 else ""
    found = []
    for each in action.pieces:
        shards = {each.component: f"{rank.rank}of{rank.ranks}{end}"}
        if each.component == "full" and (type(action) is Fetch or rank.own_store or not rank.rank):
            shards["indexer"] = f"all{end}"
        for at, digest in enumerate(each.digests):
            keys = {f"{context}/{pool}/{part}/{digest.hex()}" for pool, part in shards.items()}
            found.append((each.first_page + at, each.component, int(each.pages[at]), keys))
    return found


def leading(action: Store | Fetch, pages: list[Any], arrived: set[str]) -> int:
    """Depths of which a fetch has every page, and pages of a store in their order."""
    lacking = [at for at, (*_, keys) in enumerate(pages) if not keys <= arrived]
    if type(action) is Fetch:
        return min((pages[at][0] for at in lacking), default=action.pages)
    return min(lacking, default=len(pages))


@pytest.mark.parametrize("seed", range(12))
def test_drawn_transfers_report_what_every_piece_has(seed: int) -> None:
    """Of ranks and stages of two topologies on one store, with failures at any key, and calls that
    hang and are given up, or abandoned. Later, each page has its own bytes."""
    draw, shared = random.Random(seed), Partial()
    for ranks, stages in draw.sample([(1, 1), (2, 1), (1, 2), (2, 2)], 2):
        count, window, chosen = draw.randint(1, 8), draw.randint(1, 3), draw.randint(0, 2)
        first = {"full": 0, "swa": max(0, count - window), "mamba": count - 1}
        names, own = ["full", *draw.sample(["swa", "mamba"], chosen)], draw.random() < 0.3
        for rank, stage in product(range(ranks), range(stages)):
            place = Rank(rank, ranks, stage, stages, own)
            store = Partial() if own else shared
            for number in range(4):
                start = 10 * (number % 2)
                spans = {name: range(start + first[name], start + count) for name in names}
                pieces = tuple(piece(name, first[name], *spans[name]) for name in names)
                action = Fetch(number, 0, 0, pieces, count) if start else Store(number, pieces)
                options = replace(SMALL, batch_bytes=draw.choice((1, 300, 900, 4000)))
                layout = draw.choice([*LAYOUTS])
                with bench(store, options=options, rank=place, layout=layout) as item:
                    carried_out(item, store, place, action, draw, well=number > 1)


def carried_out(
    item: Bench, store: Partial, rank: Rank, action: Store | Fetch, draw: random.Random, well: bool
) -> None:
    """One transfer. The page at depth n is host page n; it is fetched into 10 + n."""
    pools = {pool.name: pool for each in stored_pools(item.arena).values() for pool in each}

    def content(pool: Any, depth: int) -> bytes:
        where = (rank.stage, rank.stages, *(() if pool.shared else rank[:2]))
        return random.Random(f"{pool.name} {where} {depth}").randbytes(pool.page_bytes)

    for pool, depth in product(pools.values(), range(8)):
        pool.load(depth, memoryview(content(pool, depth)))
    pages = pages_of(rank, action, item.pages.context)
    keys = sorted(set().union(*(keys for *_, keys in pages)))
    share, lost = draw.choice((0.0, 0.1)) * (not well), Status.MISSING
    store.bad = {key: draw.choice((lost, Status.FULL)) for key in keys if draw.random() < share}
    store.calls_left = -1 if well else draw.choice((-1, 1, 2, 3))
    store.arrived.clear()
    store.keys.clear()
    store.gate.clear()
    answers: list[StorageReply] = []
    item.workers.begin([action])
    until(lambda: answers.extend(item.workers.poll()) or answers or store.entered.acquire(False))
    reported = leading(action, pages, store.arrived)
    if not answers:
        ends = (item.workers.close, partial(item.workers.abandon, action.transfer))
        draw.choice((*ends, partial(setattr, item.clock, "now", 1000.0)))()
        answers = item.workers.poll()
        item.fill(seed=99)  # the host pages belong to someone else now
        before = [bytes(pool.flat) for pool in pools.values()]
        store.gate.set()
        item.idle()
        assert before == [bytes(pool.flat) for pool in pools.values()]
    elif type(action) is Fetch:
        for depth, component, page, _ in pages:
            for name in (component, "indexer")[: 1 + (component == "full")]:
                pools[name].save(page, into := memoryview(bytearray(pools[name].page_bytes)))
                assert depth >= reported or into == content(pools[name], depth)
    assert {*store.keys} <= {*keys, f"{item.pages.context}/context"}, "another rank's"
    assert answers == [REPLY_TO[type(action)](action.transfer, reported)]
    assert not well or reported == leading(action, pages, {*keys}), "all of it"
    assert bool(item.pages.document) == (rank.own_store or rank[0] == rank[2] == 0)
