"""The books kept step by step equal a recount, in every sequence; one that forgets is code 17."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from invariants import watch as watch_module
from invariants.base import HARNESS
from invariants.books.book import Book
from invariants.books.nodes import NodeBook
from invariants.books.pages import PageBook
from invariants.fuzz import play
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops import base
from invariants.fuzz.swarm import draw_swarm
from invariants.watch import AUDIT_EVERY, Watch

OPS = base.load()
WEIGHTS = weights_of(OPS)


def failures(seeds: range, checks: tuple[str, ...] | None) -> list[tuple[int, str]]:
    found = []
    for seed in seeds:
        swarm = draw_swarm(seed, WEIGHTS, ("full", "swa", "mamba"))
        failure = play.generate(swarm, OPS, seed, 60, checks=checks).failure
        if failure is not None:
            found.append((failure.code, failure.kind))
    return found


def a_node_is_forgotten(original: Any) -> Any:
    """Of what an operation touched, the last node is not looked at."""

    def retract(self: NodeBook, touched: dict[int, Any], root: Any) -> None:
        forgotten = list(touched)[-1:] if len(touched) > 1 else []
        original(self, {key: touched[key] for key in touched if key not in forgotten}, root)

    return retract


def given_back_pages_are_forgotten(original: Any) -> Any:
    def retract(self: PageBook, pages: Any, code: int) -> None:
        original(self, pages[:-1], code)

    return retract


def a_request_that_sits_down_is_forgotten(original: Any) -> Any:
    def sit(self: Book, request_id: int, view: Any) -> None:
        if request_id % 2:
            original(self, request_id, view)

    return sit


def candidates_stay_what_they_were(original: Any) -> Any:
    def refresh(self: NodeBook, mirror: Any) -> None:
        before = mirror.candidate
        original(self, mirror)
        mirror.candidate = before

    return refresh


FORGETTING: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "a node": (NodeBook, "retract", a_node_is_forgotten),
    "a page given back": (PageBook, "retract", given_back_pages_are_forgotten),
    "a request": (Book, "_admit", a_request_that_sits_down_is_forgotten),
    "a candidate": (NodeBook, "refresh", candidates_stay_what_they_were),
}


@pytest.mark.parametrize("name", FORGETTING)
def test_incomplete_books_are_a_harness_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrong = FORGETTING[name]
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
    found = failures(range(6), ())
    assert (HARNESS, "AUDIT") in found
    assert {code for code, _ in found} == {HARNESS}


def test_complete_books_find_nothing_on_the_same_sequences() -> None:
    assert failures(range(6), ()) == []


def test_every_sequence_is_recounted_during_and_after_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As often as the rule says, and behind the last operation, whatever it was."""
    seen: list[int] = []
    compare = watch_module.compare
    monkeypatch.setattr(
        watch_module,
        "compare",
        lambda kept, counted: (seen.append(kept.operations), compare(kept, counted))[1],
    )
    outcome = play.generate(draw_swarm(5, WEIGHTS), OPS, 5, 120)
    watch: Watch = outcome.hand.watch
    assert outcome.failure is None
    assert watch.operations > 2 * AUDIT_EVERY
    assert len(seen) == watch.full
    assert seen[-1] == watch.operations
    gaps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert max(gaps) <= max(AUDIT_EVERY, watch.audit_every)
