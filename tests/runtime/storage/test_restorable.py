"""Hybrids over ranks: what is agreed is the longest prefix that every rank can restore."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.actions import Lookup
from hicache.core.events import LookupDone, Reply
from hicache.runtime.ranks import Agreement, local_groups, lockstep, offered
from hicache.runtime.storage import Attachment, Rank, StorageExecutor, Task, WorkerOptions, look_up
from hicache.vllm.orders import Orders
from tests.runtime.test_agreement import Scripted
from tests.storage.memory_store import MemoryStore

from .rig import DIGESTS, SMALL, Bench

EVERY = replace(SMALL, every_boundary=True)
There = dict[str, list[bool]]  # by component, which pages one rank has in storage


@pytest.fixture(scope="module")
def bench() -> Bench:
    """Its pages name the keys; the threads have nothing to do."""
    made = Bench(MemoryStore(), rank=Rank(0, 2))
    made.workers.close()
    return made


def looked_up(
    bench: Bench, action: Lookup, there: There, options: WorkerOptions = EVERY
) -> LookupDone:
    """What a rank replies that has these pages."""
    store = MemoryStore()
    for name, row in there.items():
        for keys in bench.pages.keys(name, DIGESTS):
            store.values |= {key: b"" for key, has in zip(keys, row, strict=True) if has}
    bench.workers.store, bench.workers.options = store, options
    task = Task(action, bench.workers)
    look_up(task, action)
    reply = task.reply()
    assert isinstance(reply, LookupDone)
    return reply


def agreed(action: Lookup, replies: list[LookupDone]) -> list[Reply]:
    """What every rank is told in the end, in one collective, and vLLM's scheduler."""
    groups = local_groups(len(replies))
    ranks = [
        Agreement(Scripted([[reply]]), group) for reply, group in zip(replies, groups, strict=True)
    ]
    for rank in ranks:
        rank.submit(action)
    lockstep([rank.agree() for rank in ranks])
    assert {group.entered for group in groups} == {1}
    items = [rank.poll() for rank in ranks]
    orders = Orders(len(replies))
    orders.submit(action)
    orders.answered([(reply.transfer, offered(reply)) for reply in replies])
    assert all(item == items[0] for item in [*items, orders.poll()])
    return items[0]


def can_restore(there: There, pages: int, action: Lookup) -> bool:
    """The definition: a path needs all pages, a window the last ones, a state the last one."""
    for (name, row), trailing in zip(there.items(), action.trailing_pages, strict=True):
        start = max(0, pages - trailing) if trailing else 0
        for at in range(start, pages):
            known = name == "full" and at < action.known_pages
            if not row[at] and not known:
                return False
    return True


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ranks_agree_on_the_longest_prefix_that_all_can_restore(
    bench: Bench, data: st.DataObject
) -> None:
    requested = data.draw(st.integers(1, 16))
    known = data.draw(st.integers(0, requested))
    windows = (0, data.draw(st.integers(0, 5)), data.draw(st.sampled_from((0, 1, 1))))
    action = Lookup(5, 0, 0, DIGESTS[:requested], known, windows)
    size, rare = data.draw(st.sampled_from((1, 2, 3, 4, 8))), data.draw(st.integers(3, 9))
    seeds = st.lists(st.integers(0, 9), min_size=16, max_size=16)
    ranks: list[There] = [
        {
            name: [item < (rare if name == "mamba" else 9) for item in data.draw(seeds)]
            for name in ("full", "swa", "mamba")
        }
        for _ in range(size)
    ]
    longest = max(
        pages
        for pages in range(requested + 1)
        if all(can_restore(there, pages, action) for there in ranks)
    )
    replies = [looked_up(bench, action, there) for there in ranks]
    assert agreed(action, replies) == [LookupDone(5, longest)]
    deepest = [looked_up(bench, action, there, SMALL) for there in ranks]
    assert [reply.pages for reply in replies] == [lookup_done.pages for lookup_done in deepest]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_store_of_several_ranks_is_asked_for_every_boundary(ranks: int) -> None:
    executor: Any = Agreement.__new__(Agreement)
    executor.group = SimpleNamespace(size=ranks)
    driver: Any = SimpleNamespace(executor=executor, observers=())
    unused: Any = None
    attachment = Attachment(driver, StorageExecutor(), unused, unused, unused)
    assert attachment._options.every_boundary == (ranks > 1)
