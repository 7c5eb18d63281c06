"""Actions for storage on threads: what they count, and what a store that misbehaves cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import replace

import pytest

from hicache.core.actions import Delete, Fetch, Lookup, Store
from hicache.core.errors import CoreBug
from hicache.core.events import DeleteDone, FetchDone, LookupDone, StorageReply, StoreDone
from hicache.memory.layouts import LAYOUTS
from hicache.runtime import storage
from hicache.runtime.storage import StorageExecutor
from hicache.storage.base import Status, Value, step
from tests.storage.memory_store import MemoryStore

from .rig import DIGESTS, SMALL, Gated, bench, piece, until


def lookup(transfer: int, number: int, known: int = 0) -> Lookup:
    return Lookup(transfer, 0, 0, DIGESTS[:number], known, (0, 2, 1))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_stored_is_fetched_into_any_layout(layout: str) -> None:
    with bench(layout=layout) as first:
        assert first.store_path(6) == StoreDone(1, 9)
        assert first.done(lookup(3, 8)) == [LookupDone(3, 6)]
        with bench(first.store, layout="layer_first") as other:
            other.fill(seed=8)
            before = other.page("full", 9), other.page("full", 16)
            assert other.done(other.fetch_path(6)) == [FetchDone(2, 6)]
            for depth in range(6):
                assert other.page("full", 10 + depth) == first.page("full", depth)
            for depth in (4, 5):
                assert other.page("swa", 6 + depth) == first.page("swa", depth)
            assert other.page("mamba", 10) == first.page("mamba", 5)
            assert before == (other.page("full", 9), other.page("full", 16)), "its neighbours"


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


def test_a_write_that_hangs_is_answered_and_stores_no_page_of_another_owner() -> None:
    with bench(Gated("write")) as item:
        item.workers.begin([Store(1, (piece("full", 0, 0, 1),))])
        item.store.came_in()
        item.clock.now += SMALL.call_s + 1
        assert item.answers() == [StoreDone(1, 0)]
        old = item.page("full", 0)
        item.fill(seed=99)  # the host page belongs to someone else now
        item.store.gate.set()
        read = Fetch(2, 0, 0, (piece("full", 0, 10),), 1)
        until(lambda: item.done(read) == [FetchDone(2, 1)])
        assert item.page("full", 10) == old


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


def test_an_abandoned_fetch_counts_only_pages_that_every_piece_has() -> None:
    """The backbone has arrived, and the window at its end has not."""

    class Slow(Gated):
        def read(self, keys, values):  # type: ignore[no-untyped-def]
            if any("/swa/" in key for key in keys):
                self._pass("read")
            return MemoryStore.read(self, keys, values)

    with bench(Slow("read")) as item:
        item.store_path(6)
        item.workers.begin([item.fetch_path(6)])
        item.store.came_in()
        item.workers.abandon(2)
        assert item.workers.poll() == [FetchDone(2, 4)]
        item.store.gate.set()


def test_answers_of_closed_threads_are_not_lost_with_them() -> None:
    with bench(Gated("lookup")) as item:
        executor = StorageExecutor()
        executor.use(item.workers)
        executor.submit(lookup(1, 2))
        executor.start()
        item.workers.close()
        executor.use(None)
        assert executor.poll() == [LookupDone(1, 0)]


def test_closing_answers_everything_and_blocks_on_nothing() -> None:
    with bench(Gated("write", "read")) as item:
        actions = [Store(n, (piece("full", 0, 0),)) for n in range(4)]
        item.workers.begin([*actions, item.fetch_path(4, transfer=9)])
        item.store.came_in()
        item.workers.close()
        assert {reply.transfer for reply in item.answers(5)} == {0, 1, 2, 3, 9}
        item.workers.begin([lookup(10, 2)])
        assert item.workers.poll() == [LookupDone(10, 0)]


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
        assert sorted(answers) == sorted([StoreDone(5, 1), DeleteDone(6, True), StoreDone(7, 1)])
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


# -- errors


def test_a_store_that_raises_counts_as_failed_and_is_told_of_once() -> None:
    class Broken(MemoryStore):
        def lookup(self, keys):  # type: ignore[no-untyped-def]
            raise ConnectionResetError("gone")

    with bench(Broken()) as item:
        assert item.done(lookup(1, 2), lookup(2, 2)) == [LookupDone(1, 0), LookupDone(2, 0)]
        assert len(item.notices) == 1
        assert "ConnectionResetError('gone')" in item.notices[0]


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
