"""The page ledger against a reference that keeps one dictionary entry per page."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hicache.core.errors import CoreBug
from hicache.core.ledger import Pool
from hicache.core.types import PageState, Tier

CAPACITY = 12


class LedgerMachine(RuleBasedStateMachine):
    """`held` are groups of pages as their users would keep them, `on_loan` the open loans."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(Tier.DEVICE, "full", CAPACITY)
        self.state = dict.fromkeys(range(CAPACITY), PageState.FREE)
        self.loans = dict.fromkeys(range(CAPACITY), 0)
        self.freed: set[int] = set()
        self.generation = self.pool.generation.copy()
        self.held: list[np.ndarray] = []
        self.on_loan: list[np.ndarray] = []

    def settle(self, page: int) -> None:
        if self.state[page] is PageState.RETIRING and not self.loans[page]:
            self.state[page] = PageState.FREE
            self.freed.add(page)

    @rule(count=st.integers(0, 5), lent=st.booleans())
    def take(self, count: int, lent: bool) -> None:
        free = [page for page, state in self.state.items() if state is PageState.FREE]
        if count > len(free):
            with pytest.raises(CoreBug):
                self.pool.take(count, 1)
            return
        pages = self.pool.reserve(count, 1) if lent else self.pool.take(count, 1)
        assert len(set(pages.tolist())) == count
        assert set(pages.tolist()) <= set(free)
        for page in pages.tolist():
            self.state[page] = PageState.LENT if lent else PageState.OWNED
        if count:
            self.held.append(pages)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def cache(self, data: st.DataObject) -> None:
        pages = self.held[data.draw(st.integers(0, len(self.held) - 1))]
        if self.state[int(pages[0])] is PageState.CACHED:
            with pytest.raises(CoreBug):
                self.pool.cache(pages, 7)
            return
        self.pool.cache(pages, 7)
        self.state.update(dict.fromkeys(pages.tolist(), PageState.CACHED))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def lend(self, data: st.DataObject) -> None:
        pages = self.held[data.draw(st.integers(0, len(self.held) - 1))]
        self.pool.lend(pages)
        self.on_loan.append(pages)
        for page in pages.tolist():
            self.loans[page] += 1

    @precondition(lambda self: self.on_loan)
    @rule(data=st.data())
    def repay(self, data: st.DataObject) -> None:
        pages = self.on_loan.pop(data.draw(st.integers(0, len(self.on_loan) - 1)))
        self.pool.repay(pages)
        for page in pages.tolist():
            self.loans[page] -= 1
            self.settle(page)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        pages = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        free_now = sum(not self.loans[page] for page in pages.tolist())
        before = self.pool.free
        self.pool.give_back(pages)
        assert self.pool.free - before == free_now
        for page in pages.tolist():
            self.state[page] = PageState.RETIRING
            self.settle(page)
        with pytest.raises(CoreBug, match="double free"):
            self.pool.give_back(pages)

    @invariant()
    def every_page_is_where_the_reference_says(self) -> None:
        assert self.pool.state.tolist() == list(self.state.values())
        assert self.pool.loans.tolist() == list(self.loans.values())
        newer = self.pool.generation - self.generation
        assert min(newer) >= 0
        assert {*newer.nonzero()[0].tolist()} == self.freed
        self.generation += newer
        self.freed.clear()
        counted = [list(self.state.values()).count(state) for state in PageState]
        assert self.pool.counts == counted
        free = [page for page, state in self.state.items() if state is PageState.FREE]
        assert sorted(self.pool.free_pages().tolist()) == free
        assert self.pool.free == len(free)


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLedger = LedgerMachine.TestCase


def test_pages_of_several_owners_go_back_at_once() -> None:
    pool = Pool(Tier.HOST, "full", 6)
    owned, lent = pool.take(2, 1), pool.reserve(2, 9)
    pool.cache(owned, 3)
    pool.give_back(np.concatenate((owned, lent)))
    assert pool.counts == [6, 0, 0, 0, 0]


def test_a_loan_is_not_repaid_twice() -> None:
    pool = Pool(Tier.HOST, "full", 6)
    pages = pool.take(2, 1)
    pool.lend(pages)
    pool.repay(pages)
    with pytest.raises(CoreBug, match="repaid twice"):
        pool.repay(pages)
