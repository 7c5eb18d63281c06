"""What a player tells of a failure, and what it finds left when everything was let go; schedules,
which decide the order of replies and nothing else; and shrinking: the same failure in few
operations, the same way every time."""

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from hicache.core.actions import Backup, Load, Prefill
from hicache.core.config import Config
from hicache.core.events import AdmitWanted, Finished
from hicache.core.ledger import Pool
from hicache.core.state import State
from hicache.core.types import NO_PAGES, Tier
from invariants.fuzz.hicache.operations import OPERATIONS as OPS
from invariants.fuzz.hicache.play import drain, replay
from invariants.fuzz.hicache.player import Player
from invariants.fuzz.play import Failure, Played
from invariants.fuzz.schedules import Pending, schedule_of
from invariants.fuzz.sequence import Act, Entry, FuzzSequence, pack
from invariants.fuzz.shrink import WAYS, Search
from sim.errors import StuckError
from tests.tiny import configured, message_of

ONE = FuzzSequence(
    Config(1, (4,), (0,)),
    (Entry("arrive", {"request": 4, "tokens": [[2, 1]], "space": "", "whole": False}),),
)


def reported() -> Failure:
    failure = replay(ONE, name="one.jsonl", explained=True).failure
    assert failure is not None
    return failure


def test_a_pool_differs_at_the_wrong_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back = Pool.give_back
    monkeypatch.setattr(Pool, "give_back", lambda pool, pages: give_back(pool, pages[:-1]))
    failure = reported()
    assert failure.kind == "OWN-D"
    *_, first, title, operation = failure.text.splitlines()
    assert first.startswith("first difference from the specification: event ")
    assert "free device pages of full: expected 4, found 3" in first
    assert title == "operations:"
    assert operation.startswith("    arrive request=4 ")


def test_a_clean_sequence_has_nothing_to_tell() -> None:
    assert replay(ONE, explained=True).failure is None


# -- the drain


def used(**settings: object) -> Player:
    """A player whose only request has ended."""
    player = Player(configured(1, (8,), (8,), **settings))
    args = {"request": 0, "tokens": pack([0, 1, 2]), "space": "", "whole": False}
    OPS["arrive"].play(player, args)
    player.settle()
    player.feed(AdmitWanted(0, 3))
    player.settle()
    player.feed(Finished(0, player.key(player.jobs.pop(0), 3), 3))
    player.settle()
    return player


@pytest.mark.parametrize("settings", [{}, {"ttl_periods": 2}, {"storage": True}])
def test_a_clean_core_leaves_nothing(settings: dict[str, object]) -> None:
    player = used(**settings)
    assert any(player.core.view.nodes())
    drain(player)
    assert not any(player.core.view.nodes())
    assert not player.core.view.attached


# what a core could keep: where it is, and what is there then
KEPT: dict[str, Callable[[State], object]] = {
    "a count": lambda state: setattr(state, "backups", state.backups + 1),
    "a reservation": lambda state: operator.setitem(state.giving_up, 0, state.giving_up[0] + 1),
    "a place in a queue": lambda state: state.store_queue.update({9: [state.root]}),
    "a lock": lambda state: setattr(state.pools[1][0], "protected", 1),
    "a loan": lambda state: operator.setitem(state.pools[0][0].loans, 3, 1),
}


@pytest.mark.parametrize("kept", KEPT)
def test_what_a_core_keeps_is_found(kept: str) -> None:
    player = used()
    player._driver.observers = ()  # the checks of each event would see some of it before
    KEPT[kept](player.core._state)
    with pytest.raises(StuckError, match=r"is still|missing"):
        drain(player)


PASS = Prefill(3, 0, 0, 1, (NO_PAGES,), (), True)
READY = [
    Pending(1, 3, 1, Load(1, 0, ()), ""),
    Pending(2, 0, 2, Backup(2, ()), ""),
    Pending(3, 1, 3, PASS, ""),
]


@pytest.mark.parametrize(
    ("order", "first"),
    [("time", 1), ("priority", 2), ("heavy", 1), ("starve:0:9", 2), ("starve:1:9", 1)],
)
def test_each_schedule_chooses_its_first_reply(order: str, first: int) -> None:
    taken = schedule_of(order).choose(READY, READY)
    assert taken is not None
    assert taken.number == first


def test_pct_is_a_function_of_its_numbers_and_its_priorities_change() -> None:
    def run(key: int, depth: int) -> list[int]:
        schedule = schedule_of(f"pct:{key}:{depth}:32")
        taken = [schedule.choose(READY, READY) for _ in range(40)]
        return [0 if item is None else item.number for item in taken]

    assert run(5, 4) == run(5, 4)
    assert len({tuple(run(key, 3)) for key in range(12)}) > 3
    assert any(len(set(run(key, 4)) - {0}) > 1 for key in range(8))


def test_a_long_path_that_is_written_back_takes_as_many_rounds_as_it_has_nodes() -> None:
    host_pages = 40
    player = Player(configured(1, (host_pages,), (host_pages,), write_policy="write_back"))
    for number in range(host_pages):
        prompt = [0] * (number + 1)
        args = {"request": number, "tokens": pack(prompt), "space": "", "whole": False}
        OPS["arrive"].play(player, args)
        player.feed(AdmitWanted(number, host_pages))
        player.settle()
        player.feed(Finished(number, player.key(player.jobs[number], len(prompt)), len(prompt)))
        del player.jobs[number]
    assert len(list(player.core.view.nodes())) >= host_pages
    drain(player)
    assert player.core.view.pool(Tier.HOST, 0).free == host_pages


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
