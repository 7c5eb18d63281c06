"""Shrinking: the same failure in few operations, the same way every time, never another failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from hicache.core.config import Config
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.operations import OPERATIONS
from invariants.fuzz.hicache.play import replay
from invariants.fuzz.hicache.simpler import WAYS
from invariants.fuzz.play import Failure, Outcome
from invariants.fuzz.sequence import Act, Entry, Tape
from invariants.fuzz.shrink import Search, shrink
from tests.configs import configured, said

OPS = OPERATIONS


def play(tape: Tape) -> Outcome:
    return replay(tape, OPS)


# -- against verdicts that are made up, so that the least tape is known


CONFIG = configured(
    4, (20, 9), (30, 5), components=("full", "swa"), swa_window=6, kv_events=True, max_backups=2
)


def long_tape() -> Tape:
    entries = [
        Entry(
            "evict", {"tier": 0, "component": "full", "pages": 7}, 40, False, (Act(9, 3, "fail"),)
        )
        for _ in range(30)
    ]
    entries[4] = Entry(
        "arrive", {"request": 9, "tokens": [[2, 30]], "space": "lora", "whole": True}
    )
    entries[17] = Entry(
        "wait", {"polls": 3}, 5, False, (Act(50, 2, "repeated reply"), Act(70, 1, "torn"))
    )
    return Tape(CONFIG, tuple(entries), 5, "priority")


def verdict(wrong: Callable[[Tape], bool], kind: str = "A") -> Callable[[Tape], Outcome]:
    def judge(tape: Tape) -> Outcome:
        failure = Failure(11, kind, "made up", len(tape.entries)) if wrong(tape) else None
        return Outcome(tape, failure, cast(Hand, None))

    return judge


def shrunk(wrong: Callable[[Tape], bool], **more: Any) -> Search:
    tape = long_tape()
    failure = verdict(wrong)(tape).failure
    assert failure is not None
    return shrink(tape, failure, verdict(wrong), WAYS, **more)


def test_irrelevant_entries_are_removed() -> None:
    def wrong(tape: Tape) -> bool:
        torn = any(act.fault == "torn" for entry in tape.entries for act in entry.acts)
        arrives = any(entry.op == "arrive" for entry in tape.entries)
        return torn and arrives and tape.config.device_pages[0] >= 3

    small = shrunk(wrong)
    assert small.whole
    assert small.tape.config == Config(1, (3,), (0,))
    assert small.tape.order == "time"
    arrive, wait = small.tape.entries
    assert arrive == Entry(
        "arrive", {"request": 0, "tokens": [[0, 1]], "space": "", "whole": False}
    )
    assert wait == Entry("quiesce", {}, 1, True, (Act(0, 0, "torn"),))


def test_relevant_components_settings_and_amounts_stay() -> None:
    def wrong(tape: Tape) -> bool:
        pages = [entry.args.get("pages", 0) for entry in tape.entries]
        return (
            "swa" in tape.config.components and tape.config.kv_events and max(pages, default=0) > 4
        )

    small = shrunk(wrong)
    assert small.tape.config.components == ("full", "swa")
    assert small.tape.config.kv_events
    assert small.tape.config.max_backups == Config(1, (1,)).max_backups
    assert [entry.args["pages"] for entry in small.tape.entries] == [5]
    assert small.tape.entries[0].acts == ()


def test_entries_that_depend_on_each_other_are_removed_together() -> None:
    def wrong(tape: Tape) -> bool:
        words = [entry.op for entry in tape.entries]
        return words.count("arrive") == 1 and words.count("evict") % 2 == 0

    tape = replace(long_tape(), entries=long_tape().entries[3:10])
    failure = verdict(wrong)(tape).failure
    assert failure is not None
    small = shrink(tape, failure, verdict(wrong), WAYS)
    assert [entry.op for entry in small.tape.entries] == ["arrive"]


def test_another_failure_is_not_accepted() -> None:
    def judge(tape: Tape) -> Outcome:
        kind = "A" if len(tape.entries) >= 10 else "B"
        return verdict(lambda _: True, kind)(tape)

    tape = long_tape()
    small = shrink(tape, Failure(11, "A", "", len(tape.entries)), judge, WAYS)
    assert len(small.tape.entries) == 10
    assert small.failure.kind == "A"


def test_plays_are_bounded_and_the_best_so_far_is_kept() -> None:
    small = shrunk(lambda tape: len(tape.entries) >= 5, most=6)
    assert (small.plays, small.whole) == (6, False)
    assert 5 <= len(small.tape.entries) < 30


def test_illegal_settings_are_not_taken_for_the_failure() -> None:
    """A proposal that the core itself refuses is passed over."""
    tape = Tape(
        configured(4, (9, 9), (0, 0), components=("full", "mamba"), mamba_interval=8),
        (Entry("quiesce", {}),),
    )

    def judge(tape: Tape) -> Outcome:
        play(tape)  # raises for an interval that is no multiple of the page
        return verdict(lambda one: "mamba" in one.config.components)(tape)

    small = shrink(tape, Failure(11, "A", "", 1), judge, WAYS)
    assert small.whole
    assert said(small.tape.config, "mamba_interval") % small.tape.config.page_size == 0
