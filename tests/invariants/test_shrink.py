"""Shrinking: the same failure in few operations, the same way every time, never another failure."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from hicache.core.config import Config
from invariants.fuzz.hicache.play import replay
from invariants.fuzz.hicache.player import Player
from invariants.fuzz.play import Failure, Played
from invariants.fuzz.sequence import Act, Entry, FuzzSequence
from invariants.fuzz.shrink import WAYS, Search
from tests.configs import configured, message_of


def play(sequence: FuzzSequence) -> Played:
    return replay(sequence)


# -- against verdicts that are made up, so that the least sequence is known


CONFIG = configured(
    4, (20, 9), (30, 5), components=("full", "swa"), swa_window=6, kv_events=True, max_backups=2
)


def long_sequence() -> FuzzSequence:
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
    return FuzzSequence(CONFIG, tuple(entries), 5, "priority")


def verdict(
    wrong: Callable[[FuzzSequence], bool], kind: str = "A"
) -> Callable[[FuzzSequence], Played]:
    def judge(sequence: FuzzSequence) -> Played:
        failure = Failure(11, kind, "made up", len(sequence.entries)) if wrong(sequence) else None
        return Played(sequence, failure, cast(Player, None))

    return judge


def shrunk(wrong: Callable[[FuzzSequence], bool], **more: Any) -> Search:
    sequence = long_sequence()
    failure = verdict(wrong)(sequence).failure
    assert failure is not None
    return Search(sequence, failure, verdict(wrong), WAYS, **more).run()


def test_irrelevant_entries_are_removed() -> None:
    def wrong(sequence: FuzzSequence) -> bool:
        torn = any(act.fault == "torn" for entry in sequence.entries for act in entry.acts)
        arrives = any(entry.op == "arrive" for entry in sequence.entries)
        return torn and arrives and sequence.config.device_pages[0] >= 3

    small = shrunk(wrong)
    assert small.complete
    assert small.sequence.config == Config(1, (3,), (0,))
    assert small.sequence.order == "time"
    arrive, wait = small.sequence.entries
    assert arrive == Entry(
        "arrive", {"request": 0, "tokens": [[0, 1]], "space": "", "whole": False}
    )
    assert wait == Entry("quiesce", {}, 1, True, (Act(0, 0, "torn"),))


def test_relevant_components_settings_and_amounts_stay() -> None:
    def wrong(sequence: FuzzSequence) -> bool:
        pages = [entry.args.get("pages", 0) for entry in sequence.entries]
        return (
            "swa" in sequence.config.components
            and sequence.config.kv_events
            and max(pages, default=0) > 4
        )

    small = shrunk(wrong)
    assert small.sequence.config.components == ("full", "swa")
    assert small.sequence.config.kv_events
    assert small.sequence.config.max_backups == Config(1, (1,)).max_backups
    assert [entry.args["pages"] for entry in small.sequence.entries] == [5]
    assert small.sequence.entries[0].acts == ()


def test_entries_that_depend_on_each_other_are_removed_together() -> None:
    def wrong(sequence: FuzzSequence) -> bool:
        words = [entry.op for entry in sequence.entries]
        return words.count("arrive") == 1 and words.count("evict") % 2 == 0

    sequence = replace(long_sequence(), entries=long_sequence().entries[3:10])
    failure = verdict(wrong)(sequence).failure
    assert failure is not None
    small = Search(sequence, failure, verdict(wrong), WAYS).run()
    assert [entry.op for entry in small.sequence.entries] == ["arrive"]


def test_another_failure_is_not_accepted() -> None:
    def judge(sequence: FuzzSequence) -> Played:
        kind = "A" if len(sequence.entries) >= 10 else "B"
        return verdict(lambda _: True, kind)(sequence)

    sequence = long_sequence()
    small = Search(sequence, Failure(11, "A", "", len(sequence.entries)), judge, WAYS).run()
    assert len(small.sequence.entries) == 10
    assert small.failure.kind == "A"


def test_plays_are_bounded_and_the_best_so_far_is_kept() -> None:
    small = shrunk(lambda sequence: len(sequence.entries) >= 5, most=6)
    assert (small.plays, small.complete) == (6, False)
    assert 5 <= len(small.sequence.entries) < 30


def test_illegal_settings_are_not_taken_for_the_failure() -> None:
    """A proposal that the core itself refuses is passed over."""
    sequence = FuzzSequence(
        configured(4, (9, 9), (0, 0), components=("full", "mamba"), mamba_interval=8),
        (Entry("quiesce", {}),),
    )

    def judge(sequence: FuzzSequence) -> Played:
        play(sequence)  # raises for an interval that is no multiple of the page
        return verdict(lambda item: "mamba" in item.config.components)(sequence)

    small = Search(sequence, Failure(11, "A", "", 1), judge, WAYS).run()
    assert small.complete
    assert (
        message_of(small.sequence.config, "mamba_interval") % small.sequence.config.page_size == 0
    )
