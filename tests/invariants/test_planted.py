"""The checks: what a spoiled core shows that no planted bug does, and what books derive alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Backup
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.types import Tier
from invariants.base import (
    Broken,
    check_names,
    load_check,
)
from invariants.books.kinds import kinds_of
from invariants.checks.transfers import HappensBeforeWrite
from tests.configs import changed, configured


def hybrid(policy: str = "write_through", roomy: bool = False) -> Config:
    """Windows of one page and a half, and a state at every page."""
    return configured(
        4,
        (400, 300, 300) if roomy else (24, 14, 10),
        (900, 900, 900) if roomy else (60, 30, 20),
        components=("full", "swa", "mamba"),
        write_policy=policy,
        kv_events=True,
        swa_window=6,
        mamba_interval=4,
    )


def test_a_second_writer_of_a_host_page_is_found() -> None:
    """The bug of tests/planted that HB-WRITE finds writes to the device."""
    pool = SimpleNamespace(busy=np.ones(4, np.int32), where="host", component=0)
    pool.tier, pool.name = Tier.HOST, "full"
    moves = [SimpleNamespace(at=0, target=np.array([3]))]
    tickets = SimpleNamespace(open={})
    book: Any = SimpleNamespace(
        uses=[], moves=moves, passes_before=lambda item: [], pool=lambda *at: pool, tickets=tickets
    )
    unread: Any = None
    with pytest.raises(Broken, match="flight 1 writes host page 3: expected 0 unanswered"):
        HappensBeforeWrite().issue(book, Backup(1, ()), unread)


def test_checks_have_names_and_sentences() -> None:
    for name in check_names():
        assert load_check(name).name.lower() == name
        assert load_check(name).sentence.endswith((".", ")."))


def test_the_books_derive_each_component_as_the_core_does() -> None:
    for window in (1, 3, 4, 5, 8, 9):
        config = changed(hybrid(), swa_window=window, mamba_interval=8)
        for kind, one in zip(kinds_of(config), Core(config).view.components, strict=True):
            found = (kind.name, kind.positional, kind.need, kind.interval, kind.slots)
            assert found == (one.name, one.positional, one.window_pages, one.interval, one.slots)
