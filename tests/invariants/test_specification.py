"""The executable specification: what it may know, that it agrees with the core, and that a core
that decides otherwise is found."""

import re
from collections.abc import Callable
from dataclasses import replace
from inspect import isdatadescriptor
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hicache import registry
from hicache.core.actions import Backup, Evicted, Prefill
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    BackupDone,
    EvictWanted,
    Finished,
    PrefillDone,
)
from hicache.core.types import Key, Tier
from invariants import differential
from invariants.differential import DifferentialChecker, SpecMismatch, lockstep_of
from invariants.fuzz import sequence as corpus
from invariants.fuzz.hicache.play import replay
from invariants.spec.lockstep import Differs

CORPUS = Path(__file__).parents[1] / "corpus"
SEQUENCES = [
    path for folder in (CORPUS, CORPUS / "decisions") for path in sorted(folder.glob("*.jsonl"))
]


def test_each_rule_of_the_page_exists_in_both() -> None:
    page = (Path(__file__).parents[2] / "docs" / "specification.md").read_text()
    rows = re.findall(r"`([a-z_]+\.[a-z_.A-Z]+)` \| `([a-z_]+\.[a-z_.A-Z]+)` \|", page)
    assert len(rows) > 50
    for item, other in rows:
        assert callable(resolve_name(f"invariants.spec.{item}"))
        result = resolve_name(f"hicache.core.{other}")
        assert callable(result) or isdatadescriptor(result)  # a property, or a counter


@pytest.mark.parametrize("path", SEQUENCES, ids=lambda path: path.stem)
def test_the_core_agrees_on_every_sequence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every check and the specification asked after every event, which also begins from the
    state that the core shows, at every fifth event."""
    monkeypatch.setattr(differential, "WINDOW", 5)
    sequence = corpus.read(path)
    windows = DifferentialChecker(sequence.config, seed=0)
    failure = replay(sequence, follow=lambda player: player.observe(windows)).failure
    assert failure is None, failure.text
    assert not windows.unspecified


# -- a comparison finds what differs


CONFIG = Config(4, (6,), (6,))
ONE = [
    Arrived(1, Key.from_page_ids((1, 2)), 8, 2),
    AdmitWanted(1, 8),
    PrefillDone(1),
    BackupDone(2),
    Finished(1, Key.from_page_ids((1, 2)), 8),
    EvictWanted(Tier.DEVICE, "full", 1),
    Arrived(2, Key.from_page_ids((3, 4, 5, 6, 7, 8)), 24, 6),
    AdmitWanted(2, 24),
]


def second_is_first(outcome: Any) -> Any:
    """A page still has other content."""
    if isinstance(outcome, Prefill):
        table = outcome.tables[0].copy()
        table[1] = table[0]
        return outcome._replace(tables=(table, *outcome.tables[1:]))
    return outcome


def to_one_page(outcome: Any) -> Any:
    if isinstance(outcome, Backup):
        (copy,) = outcome.copies
        target = np.repeat(copy.target[:1], 2)
        return outcome._replace(copies=(copy._replace(target=target),))
    return outcome


def of_another_page(outcome: Any) -> Any:
    pages = np.array([5])
    return outcome._replace(pages=pages) if isinstance(outcome, Evicted) else outcome


def not_demoted(outcome: Any) -> Any:
    return outcome._replace(demoted=False) if isinstance(outcome, Evicted) else outcome


@pytest.mark.parametrize("change", [second_is_first, to_one_page, of_another_page, not_demoted])
def test_an_outcome_of_other_pages_is_found(change: Callable[[Any], Any]) -> None:
    """When each outcome of a short life is changed."""
    core, lockstep = Core(CONFIG), lockstep_of(CONFIG)
    assert lockstep is not None

    def played() -> None:
        for event in ONE:
            lockstep.compare(event, [change(outcome) for outcome in core.handle(event)])

    with pytest.raises(Differs, match="page"):
        played()


def test_free_pages_are_compared_too() -> None:
    core, checker = Core(CONFIG), DifferentialChecker(CONFIG)
    assert checker.lockstep is not None
    checker.lockstep.cache.cached[0][0].add(-1)  # a page that no outcome names
    with pytest.raises(SpecMismatch, match="free device pages of full: expected 5, found 6"):
        checker.on_outcomes(ONE[0], core.handle(ONE[0]), core.view)


def test_what_declares_nothing_is_not_compared() -> None:
    silent = SimpleNamespace(name="mine", whole_path=False, order=())
    registry.add(registry.EVICTION_POLICIES, "mine", lambda: silent)
    try:
        checker = DifferentialChecker(replace(CONFIG, eviction_policy="mine"))
    finally:
        registry.remove(registry.EVICTION_POLICIES, "mine")
    assert checker.lockstep is None
    assert checker.unspecified == "policy mine declares no order of evictions"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda node: node.parent.children.update({b"again": node}),
        lambda node: setattr(node, "parent", None),
    ],
)
def test_a_window_ends_where_a_state_fits_no_specification(
    spoil: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differential, "WINDOW", 4)
    core, windows = Core(CONFIG), DifferentialChecker(CONFIG, seed=0)
    for event in ONE[:4]:
        windows.on_event(event, core.view)
        outcomes = core.handle(event)
        if event is ONE[3]:
            spoil(next(core.view.nodes()))
        windows.on_outcomes(event, outcomes, core.view)
    assert (windows.compared, "fits no spec" in windows.unspecified) == (4, True)
    windows.unspecified = ""
    windows.on_event(ONE[4], core.view)
    assert (windows.lockstep, "fits no spec" in windows.unspecified) == (None, True)
