"""Schedules decide the order of replies and nothing else; small scopes are tried completely."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from hicache.core.actions import Backup, Load, Prefill
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import AdmitWanted, Finished
from hicache.core.types import NO_PAGES, Tier
from invariants.fuzz.hicache import play, twins, variants
from invariants.fuzz.hicache.drain import drain
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.ops import base
from invariants.fuzz.hicache.ops.requests import pack
from invariants.fuzz.hicache.swarm import draw_swarm
from invariants.fuzz.records import Pending
from invariants.fuzz.schedules import names, schedule_of
from invariants.fuzz.sequence import Act, Entry, Tape, dumps, loads
from tests.configs import configured

OPS = base.load()
PASS = Prefill(3, 0, 0, 1, (NO_PAGES,), (), True)
READY = [
    Pending(1, 3, 1, Load(1, 0, ()), ""),
    Pending(2, 0, 2, Backup(2, ()), ""),
    Pending(3, 1, 3, PASS, ""),
]


def _arrive(number: int, words: list[int]) -> Entry:
    tokens = [[word, 1] for word in words]
    args = {"request": number, "tokens": tokens, "space": "", "whole": False}
    return Entry("arrive", args, 0, True, (Act(5, 0),))


def _small() -> Tape:
    """Two prompts that share their first page, in a pool of three."""
    admits = [Entry("admit", {"request": at, "chunk": 9}, 0, True, (Act(5, 0),)) for at in (0, 1)]
    entries = (
        _arrive(0, [1, 2]),
        _arrive(1, [1]),
        *admits,
        Entry("finish", {"request": 0, "ahead": 0}),
    )
    return Tape(Config(1, (3,), (2,)), entries)


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
        return [0 if one is None else one.number for one in taken]

    assert run(5, 4) == run(5, 4)
    assert len({tuple(run(key, 3)) for key in range(12)}) > 3
    assert any(len(set(run(key, 4)) - {0}) > 1 for key in range(8))


@pytest.mark.parametrize("order", ["pct:x", "soon", "time:-1", ""])
def test_an_unknown_schedule_is_refused_in_one_line(order: str) -> None:
    tape = Tape(Config(1, (3,)), ())
    text = dumps(tape).replace('"order":"time"', f'"order":"{order}"')
    with pytest.raises(CallerError, match="order: expected one of") as caught:
        loads(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", names())
def test_a_sequence_plays_clean_under_every_schedule(name: str) -> None:
    swarm = draw_swarm(11, {op: one.weight for op, one in OPS.items()})
    made = play.generate(swarm, OPS, 11, 40)
    assert made.failure is None, made.failure
    again = play.replay(Tape(made.tape.config, made.tape.entries, order=name), OPS)
    assert again.failure is None, again.failure


def test_every_order_of_a_small_tape_is_tried_once() -> None:
    seen = set()
    for outcome in islice(variants.orders(_small(), OPS), 400):
        assert outcome.failure is None, outcome.failure
        seen.add(tuple(outcome.hand.schedule.chosen))  # type: ignore[attr-defined]
    assert len(seen) > 10
    assert () not in seen


def test_exhaustive_orders_refuse_a_long_tape() -> None:
    tape = _small()
    with pytest.raises(CallerError, match="at most 5 operations, found 10"):
        next(variants.orders(Tape(tape.config, tape.entries * 2), OPS))


def test_every_action_of_a_tape_can_fail() -> None:
    outcomes = dict(variants.sweep(_small(), OPS))
    assert all(one.failure is None for one in outcomes.values())
    plain = outcomes.pop("nothing fails")
    within = sum(entry >= 0 for entry, _, _ in plain.hand.issued)
    assert within >= 2
    starved = [name for name in outcomes if name.startswith("entry ")]
    assert len(outcomes) == within * len(variants.WAYS) + len(starved)
    failed = outcomes["action 0: fail"]
    assert failed.hand.counts["fault fail Prefill"] == 1
    assert outcomes["entry 2 finds 0 pages of full"].hand.probes.seen[
        "AdmitWanted refused: no_pages of full"
    ]


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("full", (9, 8, 16), [0, 1, 2]),
        ("swa", (20, 8, 40), [0]),
        ("mamba", (12, 10, 16), [0, 1, 2, 3]),
    ],
)
def test_every_allocation_of_a_tape_can_be_refused(
    name: str, device: tuple[int, ...], expected: list[int]
) -> None:
    """With at most so many pages left, a prompt of two and a half is refused for want of them; of
    states, whoever takes the others takes four at a time."""
    components = ("full", "swa", "mamba")
    config = configured(2, device, (9, 9, 9), components=components, swa_window=4, mamba_interval=2)
    finish = Entry("finish", {"request": 0, "ahead": 0})
    first = (_arrive(0, [1, 1, 2, 2, 3]), Entry("admit", {"request": 0, "chunk": 9}))
    tape = Tape(config, (*first, Entry("quiesce", {}), finish))
    outcomes = dict(variants.sweep(tape, OPS, ()))
    assert all(one.failure is None for one in outcomes.values())
    why = f"AdmitWanted refused: no_pages of {name}"
    tried = [at for at in range(99) if f"entry 1 finds {at} pages of {name}" in outcomes]
    found = [outcomes[f"entry 1 finds {at} pages of {name}"].hand.probes.seen[why] for at in tried]
    assert tried == [*range(len(tried))]
    assert [at for at, count in zip(tried, found, strict=True) if count] == expected


@pytest.mark.parametrize("seed", [4, 5])
def test_twin_sequences_play_clean_and_answer_the_same(seed: int) -> None:
    """Seed 4 has replies, seed 5 a device."""
    swarm = draw_swarm(seed, {op: one.weight for op, one in OPS.items()})
    made = play.generate(swarm, OPS, seed, 25)
    found = list(variants.played_twins(made, OPS))
    assert len(found) > 10
    assert not [one.failure.text for one in found if one.failure]
    assert made.hand.answers
    names = {one.tape.notes["twin"] for one in found}
    assert {"prefill at once", "prefill by page", "prefill in batches"} <= names


def test_twins_keep_the_operations_and_the_faults_of_a_tape() -> None:
    failing = (Act(5, 1, "fail"), Act(9, 2))
    entries = tuple(one._replace(acts=failing) for one in _small().entries)
    tape = replace(_small(), entries=entries)
    found = list(twins.twins(tape))
    assert len({twin.name for twin in found}) == len(found) > 10
    for twin in found:
        assert [one.op for one in twin.tape.entries] == [one.op for one in entries], twin.name
        for entry in twin.tape.entries:
            assert [act._replace(delay=0) for act in entry.acts] == [
                act._replace(delay=0) for act in failing
            ], twin.name


def test_twin_sequences_that_answer_differently_are_reported() -> None:
    one, other = (play.replay(_small(), OPS).hand for _ in range(2))
    assert not twins.difference(one, other)
    other.answers[0] = (1, 9)
    assert twins.difference(one, other) == "request 0: another answer from token 1 on"
    other.prompts[0] = (1, 9)
    assert not twins.difference(one, other)


def test_a_long_path_that_is_written_back_takes_as_many_rounds_as_it_has_nodes() -> None:
    room = 240
    hand = Hand(configured(1, (room,), (room,), write_policy="write_back"))
    for number in range(room):
        prompt = [0] * (number + 1)
        args = {"request": number, "tokens": pack(prompt), "space": "", "whole": False}
        OPS["arrive"].play(hand, args)
        hand.feed(AdmitWanted(number, room))
        hand.settle()
        hand.feed(Finished(number, hand.key(hand.jobs[number], len(prompt)), len(prompt)))
        del hand.jobs[number]
    assert len(list(hand.core.view.nodes())) >= room
    drain(hand)
    assert hand.core.view.pool(Tier.HOST, 0).free == room
