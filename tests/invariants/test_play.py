"""What a player tells of a failure, and what it finds left when everything was let go; schedules,
which decide the order of replies and nothing else."""

import operator
from collections.abc import Callable

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
from invariants.fuzz.play import Failure
from invariants.fuzz.schedules import Pending, schedule_of
from invariants.fuzz.sequence import Entry, FuzzSequence, pack
from sim.errors import StuckError
from tests.configs import configured

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
    room = 40
    player = Player(configured(1, (room,), (room,), write_policy="write_back"))
    for number in range(room):
        prompt = [0] * (number + 1)
        args = {"request": number, "tokens": pack(prompt), "space": "", "whole": False}
        OPS["arrive"].play(player, args)
        player.feed(AdmitWanted(number, room))
        player.settle()
        player.feed(Finished(number, player.key(player.jobs[number], len(prompt)), len(prompt)))
        del player.jobs[number]
    assert len(list(player.core.view.nodes())) >= room
    drain(player)
    assert player.core.view.pool(Tier.HOST, 0).free == room
