"""Sequences on the cache of docs/fuzz_your_cache.md: what is played, judged, shrunk and refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invariants.fuzz import target as base
from invariants.fuzz.operations import Player, operations
from invariants.fuzz.play import TargetPlayer
from invariants.fuzz.script import Recorder
from invariants.fuzz.sequence import Act, Entry, FuzzSequence
from tests.mine import kind

CONFIG = {"page": 1, "pages": 8, "host": 8}
ARRIVAL = {"request": 0, "tokens": [[1, 3]], "space": ""}


@pytest.fixture
def radix(tmp_path: Path) -> type[base.Target]:
    return kind(tmp_path)


def target_player(radix: type[base.Target], folder: Path) -> TargetPlayer:
    return TargetPlayer(radix, "Radix", "", lambda file: file.partition(f"{folder}/")[2])


def sequence(*entries: Entry) -> FuzzSequence:
    return FuzzSequence(CONFIG, entries, target="Radix")


def test_an_error_is_named_by_the_lines_of_the_engine(
    tmp_path: Path, radix: type[base.Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    admits = Entry("admit", {"request": 0, "chunk": 9})
    played = sequence(Entry("arrive", ARRIVAL), admits)
    broken = kind(tmp_path, "request = Request(", "raise LookupError('bad'); request = Request(")
    failure = target_player(broken, tmp_path).replay(played).failure
    assert failure is not None
    assert failure.kind == "CRASH LookupError radix.py admit"
    assert failure.lines[0][3].startswith("raise LookupError(")
    monkeypatch.setattr(radix, "admit", lambda self, job: 1 / 0)
    failure = target_player(radix, tmp_path).replay(played).failure
    assert failure is not None
    assert failure.code == "HARNESS"


def test_an_adapter_answers_with_arrays_and_generators_and_uses_less_than_it_found(
    tmp_path: Path, radix: type[base.Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = dict(vars(radix))

    def begin(self: Any, tokens: list[int]) -> Any:
        return calls["begin"](self, tokens[: self.find(tokens[:-1]).device + 1])  # loads nothing

    def slots(self: Any, request: Any) -> Any:
        parts = calls["slots"](self, request)
        return [part if part is None else np.array(part, int) for part in parts]

    monkeypatch.setattr(radix, "begin", begin)
    monkeypatch.setattr(radix, "slots", slots)
    monkeypatch.setattr(radix, "begun", lambda self: (each for each in calls["begun"](self)))
    plays = target_player(radix, tmp_path)
    outcomes = [plays.generate(seed, 80) for seed in range(8)]
    assert [each.failure for each in outcomes] == [None] * 8
    assert sum(each.player.counts["hit on host"] for each in outcomes if each.player)


def test_transfers_end_late_in_the_order_of_the_schedule(
    tmp_path: Path, radix: type[base.Target]
) -> None:
    entries = (
        Entry("arrive", ARRIVAL),
        Entry("admit", {"request": 0, "chunk": 9}),
        Entry("finish", {"request": 0, "keep": True}, acts=(Act(5, 0), Act(5, 0))),
        Entry("wait", {"polls": 1}),
    )
    ops, player = operations(radix), Player(radix(CONFIG, Recorder()))
    for entry in entries[:3]:
        player.begin(entry.op, entry.gap, entry.poll, entry.acts)
        ops[entry.op].play(player, entry.args)
        player.collect()
    assert {pending.kind for pending in player.pending} == {"Backup"}
    ops["wait"].play(player, {"polls": 1})
    assert not player.pending
    assert target_player(radix, tmp_path).replay(sequence(*entries)).failure is None
