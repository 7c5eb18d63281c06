"""Schedules decide the order of replies and nothing else."""

import pytest

from hicache.core.actions import Backup, Load, Prefill
from hicache.core.events import AdmitWanted, Finished
from hicache.core.types import NO_PAGES, Tier
from invariants.fuzz.hicache.operations import OPERATIONS as OPS
from invariants.fuzz.hicache.play import drain
from invariants.fuzz.hicache.player import Player
from invariants.fuzz.schedules import Pending, schedule_of
from invariants.fuzz.sequence import pack
from tests.configs import configured

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
