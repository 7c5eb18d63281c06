"""Sequences on our own core as a peer: the laws hold, and planted bugs break them; what fails is
shrunk, explained, and written as a script that fails by itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from invariants.fuzz import laws
from invariants.fuzz import target as base
from invariants.fuzz.hand import Hand
from invariants.fuzz.led import led
from invariants.fuzz.operations import operations
from invariants.fuzz.play import WHOLE, Outcome, Player, look
from invariants.fuzz.recorded import recorded, recording
from invariants.fuzz.script import Recorder
from invariants.fuzz.sequence import Act, Entry, Tape, dumps, loads
from invariants.fuzz.shrink import Search, ways_of_values
from invariants.fuzz.targets.hicache import DOUBLES, PEER
from tests.patience import PATIENCE_S
from tests.planted import planted

ROOT = Path(__file__).resolve().parents[3]
CORE = str(ROOT / "hicache" / "core") + "/"
ENGINES = Path(base.__file__).parent / "targets"
SEQUENCES, LENGTH = 30, 60
# Bugs of the core that leave a wrong state behind, and a law that says so.
PLANTED = {
    "duplicate-pages-leak": {"POOL-SUM"},
    "demoted-copy-is-not-queued": {"QUIESCENCE"},
    "write-back-leaves-an-empty-node": {"MATCH"},
}


def player() -> Player:
    return Player(PEER, "hicache", "here", lambda file: file.partition(CORE)[2])


def hunted(name: str) -> tuple[Player, Outcome]:
    """A sequence that fails with a planted bug."""
    one = player()
    for seed in range(400):
        outcome = one.generate(seed, LENGTH)
        if outcome.failure is not None:
            return one, outcome
    raise AssertionError(f"{name} is not found")


def test_no_law_is_broken_and_all_states_are_reached() -> None:
    one, reached = player(), set[str]()
    for seed in range(SEQUENCES):
        outcome = one.generate(seed, LENGTH)
        assert outcome.failure is None, (seed, outcome.failure)
        if outcome.hand is not None:
            reached |= {name for name, count in (+outcome.hand.counts).items() if count}
    assert set(PEER.REACHES) - reached <= {"emptied", "refused growth"}


class Marked(base.Peer):
    """A peer that says whether its state changed. judged: how often its own laws were asked."""

    state = judged = 0

    def mark(self) -> int:
        return self.state

    def pools(self) -> tuple[base.PoolState, ...]:
        return ()

    def laws(self) -> None:
        self.judged += 1


def test_a_state_that_seems_unchanged_is_judged_every_few_looks() -> None:
    peer = Marked({"page": 1}, Recorder())
    hand = Hand(peer)
    for _ in range(2 * WHOLE):
        look(hand)
    assert peer.judged == 3
    peer.state = 1
    look(hand)
    look(hand)
    assert peer.judged == 4
    look(hand, whole=True)
    assert peer.judged == 5


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_breaks_a_law(name: str) -> None:
    with planted(name):
        _, outcome = hunted(name)
    assert outcome.failure is not None
    assert outcome.failure.code in PLANTED[name], outcome.failure


def test_a_failure_is_shrunk_explained_and_written_as_a_script(tmp_path: Path) -> None:
    with planted("duplicate-pages-leak"):
        one, outcome = hunted("duplicate-pages-leak")
        assert outcome.failure is not None
        search = Search(
            outcome.tape, outcome.failure, one.replay, ways_of_values(PEER.simpler), 600
        )
        search.run()
        tape, failure = search.tape, search.shrunk().failure
        assert failure.kind == outcome.failure.kind
        assert len(tape.entries) <= 6
        assert loads(dumps(tape)) == tape
        lines = led(one, tape)
        recorder = Recorder(on=True)
        assert one.replay(tape, recorder).failure == failure
    assert "_share" in {line.function for line in lines[:4]}, lines  # the patched function
    assert one.replay(tape).failure is None  # without the bug
    sources = [*(ENGINES / name for name in DOUBLES), Path(laws.__file__), Path(base.__file__)]
    text = recorder.script("A bug.", sources)
    assert "invariants" not in text
    assert not recorder.gaps
    (tmp_path / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr  # the core here has no bug
    assert "core.handle(AdmitWanted(" in text


def test_a_recording_answers_as_the_peer_did() -> None:
    one, lines = player(), list[str]()
    tape = one.generate(3, 40).tape
    played = Player(recording(PEER, lines), "hicache", "here", one.where).replay(tape)
    assert played.failure is None
    assert played.hand is not None
    again = Player(recorded("\n".join(lines)), "hicache", "here", one.where)
    said = again.replay(tape)
    assert said.failure is None
    assert said.hand is not None
    assert said.hand.answers == played.hand.answers
    fewer = replace(tape, entries=tape.entries[1:])
    other = again.replay(fewer).failure
    assert other is not None
    assert other.code == "CONTRACT"


def test_an_error_of_the_engine_is_named_by_its_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = Tape(config(), (Entry("arrive", arrival(0)),), release="here")
    with planted("windows-stay-on-device-without-backbone"):
        _, outcome = hunted("windows-stay-on-device-without-backbone")
    failure = outcome.failure
    assert failure is not None
    assert failure.kind == "CRASH CoreBug tree.py detach"
    assert failure.lines[0].text.startswith("raise CoreBug(")
    monkeypatch.setattr(PEER, "admit", lambda self, job: 1 / 0)
    failure = player().replay(tape).failure
    assert failure is not None
    assert failure.code == "HARNESS"


def config() -> dict[str, object]:
    return {
        "components": "full",
        "policy": "write_through",
        "order": "lru",
        "page": 1,
        "pages": 8,
        "host": 8,
        "window": 1,
    }


def arrival(request: int) -> dict[str, object]:
    return {"request": request, "tokens": [[1, 3]], "space": ""}


def test_transfers_end_late_in_the_order_of_the_schedule() -> None:
    one = player()
    entries = (
        Entry("arrive", arrival(0)),
        Entry("admit", {"request": 0, "chunk": 9}, acts=(Act(5, 0), Act(5, 0))),
        Entry("finish", {"request": 0, "keep": True}),
        Entry("wait", {"polls": 1}),
    )
    ops, hand = operations(PEER), Hand(PEER(config(), Recorder()))
    for entry in entries[:3]:
        hand.begin(entry.op, entry.gap, entry.poll, entry.acts)
        ops[entry.op].play(hand, entry.args)
        hand.collect()
    assert {type(pending.action).__name__ for pending in hand.pending} == {"Backup"}
    ops["wait"].play(hand, {"polls": 1})
    assert not hand.pending
    assert one.replay(Tape(config(), entries)).failure is None
