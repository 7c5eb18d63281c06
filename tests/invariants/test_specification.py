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
    Event,
    EvictWanted,
    Finished,
    MatchWanted,
    PrefillDone,
)
from hicache.core.types import Key, Tier
from invariants.differential import DifferentialChecker, SpecMismatch
from invariants.fuzz import sequence as corpus
from invariants.fuzz.hicache.operations import OPERATIONS
from invariants.fuzz.hicache.play import replay
from invariants.spec.lockstep import Differs, Lockstep
from invariants.spec.specification import Specification

OPS = OPERATIONS
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
def test_the_core_agrees_on_every_sequence(path: Path) -> None:
    """With every check and the specification asked after every event."""
    failure = replay(corpus.read(path), OPS).failure
    assert failure is None, failure.text


# -- a comparison finds what differs


def answered(config: Config, events: list[Event]) -> list[tuple[Event, list[Any]]]:
    core = Core(config)
    return [(event, core.handle(event)) for event in events]


def key(*rows: int) -> Key:
    return Key.from_page_ids(rows)


CONFIG = Config(4, (6,), (6,))
ONE = [
    Arrived(1, key(1, 2), 8, 2),
    AdmitWanted(1, 8),
    PrefillDone(1),
    BackupDone(2),
    Finished(1, key(1, 2), 8),
    EvictWanted(Tier.DEVICE, "full", 1),
    Arrived(2, key(3, 4, 5, 6, 7, 8), 24, 6),
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

    def played() -> None:
        lockstep = Lockstep(CONFIG)
        for event, outcomes in answered(CONFIG, ONE):
            lockstep.compare(event, [change(outcome) for outcome in outcomes])

    with pytest.raises(Differs, match="page"):
        played()


def test_free_pages_are_compared_too() -> None:
    core, differential = Core(CONFIG), DifferentialChecker(CONFIG)
    assert differential.lockstep is not None
    differential.lockstep.specification = _Taking(CONFIG)
    differential.on_outcomes(ONE[0], core.handle(ONE[0]), core.view)  # counts those of host
    result = core.handle(MatchWanted(1))
    with pytest.raises(SpecMismatch, match="free device pages of full: expected 4, found 6"):
        differential.on_outcomes(MatchWanted(1), result, core.view)


class _Taking(Specification):
    """A specification with one page in use that no outcome names."""

    def handle(self, event: Event) -> list[Any]:
        result = super().handle(event)
        self.cache.root.children.append(
            node := type(self.cache.root)(self.cache.root, "", [b""], 1)
        )
        node.copies[0][0] = self.cache.new_pages(1)
        return result


def test_what_declares_nothing_is_not_compared() -> None:
    silent = SimpleNamespace(name="mine", whole_path=False, order=())
    registry.add(registry.EVICTION_POLICIES, "mine", lambda: silent)
    try:
        differential = DifferentialChecker(replace(CONFIG, eviction_policy="mine"))
    finally:
        registry.remove(registry.EVICTION_POLICIES, "mine")
    assert differential.lockstep is None
    assert differential.unspecified == "policy mine declares no order of evictions"


def test_a_comparison_ends_where_the_tree_is_too_large() -> None:
    differential = DifferentialChecker(CONFIG, most_pages=2)
    core = Core(CONFIG)
    for event, _ in answered(CONFIG, ONE):
        differential.on_outcomes(event, core.handle(event), core.view)
    assert 0 < differential.compared < len(ONE)
    assert differential.lockstep is None
