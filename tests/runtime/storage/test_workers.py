"""Actions for storage on threads: what they count, and what a store that misbehaves cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hicache.core.actions import Delete, Fetch, Lookup, Store
from hicache.core.errors import CallerError, CoreBug
from hicache.core.events import DeleteDone, FetchDone, LookupDone, StorageReply, StoreDone
from hicache.memory.layouts import LAYOUTS
from hicache.memory.pools import StoredPool
from hicache.runtime import storage
from hicache.runtime.storage import StorageExecutor, WorkerOptions
from hicache.storage.base import Status, Value, step
from tests.storage.memory_store import MemoryStore

from .rig import DIGESTS, SMALL, Bench, Gated, bench, piece, until


def lookup(flight: int, asked: int, known: int = 0) -> Lookup:
    return Lookup(flight, 0, 0, DIGESTS[:asked], known, (0, 2, 1))


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


@pytest.mark.parametrize("spoilt", ["full", "indexer"])
@pytest.mark.parametrize("how", ["missing", "flipped", "short", "of another key"])
def test_only_the_pages_before_a_bad_one_arrive(spoilt: str, how: str) -> None:
    """A sidecar counts as its pool does. The host page of a bad one is not touched."""
    with bench() as one:
        one.store_path(5)
        place = "all" if spoilt == "indexer" else "0of1"
        key = f"{one.pages.context}/{spoilt}/{place}/{DIGESTS[2].hex()}"
        value = bytearray(one.store.values[key])
        value[-1] ^= 16
        other = f"{one.pages.context}/{spoilt}/{place}/{DIGESTS[3].hex()}"
        changed = {"flipped": bytes(value), "short": bytes(value[:-1])}
        one.store.values[key] = changed.get(how, one.store.values[other])
        if how == "missing":
            del one.store.values[key]
        before = one.page("full", 12)
        read = Fetch(2, 0, 0, (piece("full", 0, 10, 11, 12, 13, 14),), 5)
        assert one.done(read) == [FetchDone(2, 2)]
        assert [one.page("full", 10 + n) == one.page("full", n) for n in range(2)] == [True] * 2
        assert one.page("full", 12) == before


def test_a_window_or_state_that_is_missing_limits_the_answer() -> None:
    with bench() as one:
        one.store_path(6)
        read = one.fetch_path(6)
        [state] = one.pages.keys("mamba", DIGESTS[5:6])
        one.store.values.pop(state[0])
        assert one.done(read) == [FetchDone(2, 5)]
        [window] = one.pages.keys("swa", DIGESTS[4:5])
        one.store.values.pop(window[0])
        assert one.done(read._replace(flight=4)) == [FetchDone(4, 4)]


def test_a_full_store_keeps_the_leading_pages() -> None:
    class Small(Gated):
        def write(self, keys, values):  # type: ignore[no-untyped-def]
            found = super().write(keys, values)
            bad = DIGESTS[3].hex()
            both = zip(keys, found, strict=True)
            return [Status.FULL if bad in key else status for key, status in both]

    for size in (600, 10_000):  # a page for each call, and all pages in one
        with bench(Small(), options=replace(SMALL, batch_bytes=size)) as one:
            assert one.store_path(6) == StoreDone(1, 3)


# -- stores that hang


def test_a_call_on_which_bytes_flow_is_waited_for() -> None:
    """However long it takes; once it has ended, what it left behind is no progress of others."""

    class Flowing(MemoryStore):
        def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
            for _ in range(3):
                one.clock.now += SMALL.call_s
                early.extend(one.workers.poll())
                step()
            left.append(copy_context())
            return super().read(keys, values)

        def lookup(self, keys: Sequence[str]) -> list[bool | None]:
            if left:
                one.clock.now += SMALL.call_s + 1
                left[0].run(step)
                early.extend(one.workers.poll())
            return super().lookup(keys)

    early: list[StorageReply] = []
    left: list[Context] = []
    with bench(Flowing(), options=replace(SMALL, readers=1)) as one:
        one.store_path(4)
        assert one.done(one.fetch_path(4)) == [FetchDone(2, 4)]
        assert early == []
        one.workers.begin([lookup(7, 4)])
        until(lambda: early == [LookupDone(7, 0)])


def test_a_write_that_hangs_is_answered_and_stores_no_page_of_another_owner() -> None:
    with bench(Gated("write")) as one:
        one.workers.begin([Store(1, (piece("full", 0, 0, 1),))])
        one.store.came_in()
        one.clock.now += SMALL.call_s + 1
        assert one.answers() == [StoreDone(1, 0)]
        old = one.page("full", 0)
        one.fill(seed=99)  # the host page belongs to someone else now
        one.store.gate.set()
        read = Fetch(2, 0, 0, (piece("full", 0, 10),), 1)
        until(lambda: one.done(read) == [FetchDone(2, 1)])
        assert one.page("full", 10) == old


def test_a_queue_behind_threads_that_all_hang_is_answered_at_once() -> None:
    with bench(Gated("lookup")) as one:
        hanging = [lookup(flight, 2) for flight in range(SMALL.readers)]
        one.workers.begin(hanging)
        for _ in hanging:
            one.store.came_in()
        one.workers.begin([lookup(8, 2), one.fetch_path(4, flight=9)])
        assert one.workers.poll() == []
        one.clock.now += SMALL.call_s + 1
        assert {reply.flight for reply in one.workers.poll()} == {0, 1, 8, 9}
        one.workers.begin([lookup(10, 2)])
        assert one.workers.poll() == [LookupDone(10, 0)]
        assert one.store_path(4) == StoreDone(1, 7), "stores have threads of their own"
        one.store.gate.set()
        until(lambda: one.done(lookup(11, 4)) == [LookupDone(11, 4)])  # a thread is back


def test_an_abandoned_fetch_counts_only_pages_that_every_piece_has() -> None:
    """The backbone has arrived, and the window at its end has not."""

    class Slow(Gated):
        def read(self, keys, values):  # type: ignore[no-untyped-def]
            if any("/swa/" in key for key in keys):
                self._pass("read")
            return MemoryStore.read(self, keys, values)

    with bench(Slow("read")) as one:
        one.store_path(6)
        one.workers.begin([one.fetch_path(6)])
        one.store.came_in()
        one.workers.abandon(2)
        assert one.workers.poll() == [FetchDone(2, 4)]
        one.store.gate.set()


def test_an_action_that_was_not_begun_is_abandoned_too() -> None:
    with bench(Gated("lookup")) as one:
        executor = StorageExecutor()
        executor.use(one.workers)
        executor.submit(lookup(1, 2))
        assert executor.poll() == []
        executor.abandon(1)
        assert executor.poll() == [LookupDone(1, 0)]


def test_answers_of_closed_threads_are_not_lost_with_them() -> None:
    with bench(Gated("lookup")) as one:
        executor = StorageExecutor()
        executor.use(one.workers)
        executor.submit(lookup(1, 2))
        executor.start()
        one.workers.close()
        executor.use(None)
        assert executor.poll() == [LookupDone(1, 0)]


def test_closing_answers_everything_and_blocks_on_nothing() -> None:
    with bench(Gated("write", "read")) as one:
        actions = [Store(n, (piece("full", 0, 0),)) for n in range(4)]
        one.workers.begin([*actions, one.fetch_path(4, flight=9)])
        one.store.came_in()
        one.workers.close()
        assert {reply.flight for reply in one.answers(5)} == {0, 1, 2, 3, 9}
        one.workers.begin([lookup(10, 2)])
        assert one.workers.poll() == [LookupDone(10, 0)]


# -- delete


def test_a_delete_comes_behind_every_store_before_it_and_spares_other_caches() -> None:
    with bench(Gated()) as one:
        one.store_path(6)
        one.store.values["other/full/0of1/00"] = b"kept"
        one.store.kinds = {"write"}
        first, second = (Store(n, (piece("full", n, n),)) for n in (5, 7))
        one.workers.begin([first, Delete(6), second])
        one.store.came_in()
        assert one.workers.poll() == []
        one.store.gate.set()
        found = one.answers(3)
        assert sorted(found) == sorted([StoreDone(5, 1), DeleteDone(6, True), StoreDone(7, 1)])
        left = {key.rpartition("/")[2] for key in one.store.values}
        assert left == {"00", "context", DIGESTS[7].hex()}


def test_what_went_before_a_delete_came_to_it_is_deleted() -> None:
    class Evicting(MemoryStore):
        def delete(self, keys):  # type: ignore[no-untyped-def]
            self.values.pop(keys[0], None)
            return super().delete(keys)

    with bench(Evicting()) as one:
        one.store_path(6)
        assert one.done(Delete(7)) == [DeleteDone(7, True)]
        assert {key.rpartition("/")[2] for key in one.store.values} == {"context"}


def test_a_store_waits_for_the_delete_before_it() -> None:
    with bench(Gated()) as one:
        one.store_path(6)
        one.idle()
        one.store.kinds = {"delete"}
        one.workers.begin([Delete(6), Store(7, (piece("full", 5, 5),))])
        one.store.came_in()
        assert [type(task.action) for task in one.workers._lanes[1].queue] == [Store]
        one.store.gate.set()
        assert one.answers(2) == [DeleteDone(6, True), StoreDone(7, 1)]


def test_a_delete_does_not_wait_for_a_store_that_hangs() -> None:
    with bench(Gated("write")) as one:
        one.workers.begin([Store(5, (piece("full", 5, 5),)), Delete(6)])
        one.store.came_in()
        one.clock.now += SMALL.call_s + 1
        assert sorted(one.answers(2)) == sorted([StoreDone(5, 0), DeleteDone(6, True)])


# -- errors


def test_a_store_that_raises_counts_as_failed_and_is_told_of_once() -> None:
    class Broken(MemoryStore):
        def lookup(self, keys):  # type: ignore[no-untyped-def]
            raise ConnectionResetError("gone")

    with bench(Broken()) as one:
        assert one.done(lookup(1, 2), lookup(2, 2)) == [LookupDone(1, 0), LookupDone(2, 0)]
        assert len(one.notices) == 1
        assert "ConnectionResetError('gone')" in one.notices[0]


def test_a_defect_of_this_project_is_not_taken_for_one_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(storage, "look_up", fail)
    with bench() as one:
        one.workers.begin([lookup(1, 2)])
        with pytest.raises(CoreBug, match=r"a thread for storage failed: .*a defect"):
            one.answers()


@pytest.mark.parametrize("name", ["readers", "writers", "batch_bytes", "batch_keys", "call_s"])
def test_options_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(CallerError, match=f"{name}: expected"):
        WorkerOptions(**{name: 0})


def pools_of(one: Bench) -> list[StoredPool]:
    places = one.pages._places.values()
    return [place.pool for found in places for place in found]  # type: ignore[misc]


def test_progress_of_a_fetch_stops_before_a_page_whose_window_is_still_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pages of full attention come first; a fetch that is given up then has brought two."""
    seen: list[int] = []

    class Watched(SimpleNamespace):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "progress":
                seen.append(self.progress)

    def items(depths: tuple[int, ...], written: bool) -> list[SimpleNamespace]:
        return [SimpleNamespace(depth=one, bytes=1, keys=[one], pools=[0]) for one in depths]

    monkeypatch.setattr(storage, "_read", lambda task, batch: [True] * len(batch))
    task: Any = Watched(pages=SimpleNamespace(items=items), options=replace(SMALL, batch_bytes=1))
    action: Any = SimpleNamespace(pieces=[(0, 1, 2, 3), (2, 3)], first_page=0, pages=4)
    storage.fetch(task, action)
    assert seen == [1, 2, 2, 2, 3, 4, 4]


def test_the_least_of_several_bad_pages_in_a_batch_limits_the_answer() -> None:
    with bench(options=replace(SMALL, batch_bytes=10_000)) as one:
        one.store_path(6)
        for component, depth in (("full", 5), ("swa", 4)):
            key = one.pages.keys(component, DIGESTS[depth : depth + 1])[0][0]
            one.store.values.pop(key)
        assert one.done(one.fetch_path(6)) == [FetchDone(2, 4)]
