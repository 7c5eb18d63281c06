"""Following a replay: a core that gets the same operations hits the same, request by request."""

from __future__ import annotations

from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from invariants.fuzz.draws import Draws
from invariants.fuzz.records import Job
from invariants.fuzz.tapes.tape import Entry
from invariants.peers.engines.hicache import PEER, HicachePeer
from invariants.peers.hand import Hand
from invariants.peers.ops import check, operations
from invariants.peers.play import Player, play_entry
from invariants.peers.script import Recorder
from invariants.peers.tape import PeerTape

from .followed import Follower, capped, followed, generated, replayed
from .sglang_prefixes import config_of, hits_of, times

WORKLOAD = (
    "serving-shared-prefix --gsp-num-groups 4 --gsp-prompts-per-group 3 --runs 2 "
    "--gsp-system-prompt-tokens 256 --gsp-question-tokens 192 --gsp-output-tokens 80"
)
REPLAY = "--times pure-roofline --engine plain --check off --max-running 3 --device-tokens 1984"


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> Path:
    return generated(WORKLOAD, tmp_path / "trace.jsonl")


def followed_by(trace: Path, more: str = "") -> Follower:
    follower = Follower(trace)
    with followed(follower):
        replayed(trace, f"{REPLAY} {more}")
    return follower


def played(follower: Follower, judges: bool = True) -> list[dict[str, int]]:
    """The answers of this project's core as a peer."""
    config = {name: config_of(follower)[name] for name in PEER.TAKES}
    tape = PeerTape("hicache", "here", config, tuple(follower.entries))
    check(tape, operations(PEER))
    outcome = Player(PEER, "hicache", "here", lambda file: "").replay(tape, Recorder(judges=judges))
    assert outcome.failure is None
    assert outcome.hand is not None
    return outcome.hand.answers


@pytest.mark.parametrize("host", [0, 200])
def test_the_same_operations_give_the_same_hits(trace: Path, host: int) -> None:
    follower = followed_by(trace, f"--host-pages {host}")
    hits = hits_of(follower, played(follower))
    assert len(follower.hits) == 24
    assert len(set(follower.hits.values())) > 1
    assert {one: sum(hit) for one, hit in hits.items()} == {
        one: sum(hit) for one, hit in follower.hits.items()
    }


def test_every_request_grows_to_what_was_computed_of_it(trace: Path) -> None:
    follower = followed_by(trace, "--host-pages 0")
    grown: dict[int, int] = {}
    for entry in follower.entries:
        if entry.op == "grow":
            grown[entry.args["request"]] = grown.get(entry.args["request"], 0) + entry.args["more"]
    assert grown == dict.fromkeys(range(24), 79 // 16)  # the last token is never computed


def test_requests_hit_no_more_than_they_may(trace: Path) -> None:
    free = followed_by(trace, "--host-pages 0")
    pages = {one: min(2, sum(hit) // 64) for one, hit in free.hits.items()}
    with capped(pages):
        follower = followed_by(trace, "--host-pages 0")
    assert {one: sum(hit) // 64 for one, hit in follower.hits.items()} == pages
    assert pages != {one: sum(hit) // 64 for one, hit in free.hits.items()}


def test_a_request_that_a_peer_never_admits_hits_nothing(trace: Path) -> None:
    follower = followed_by(trace, "--host-pages 0")
    refused = [{"op": entry.op} for entry in follower.entries]
    assert set(hits_of(follower, refused).values()) == {(0, 0)}


def test_the_times_of_a_burst() -> None:
    rows = [
        {"arrival_ns": 10**9, "finish_ns": at * 10**9, "ttft_ns": first * 10**9}
        for at, first in ((5, 1), (9, 2), (7, 6))
    ]
    assert times(rows) == (8.0, 3.0, 2.0)


def test_an_admission_may_compute_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    prefill = PEER.prefill

    def noted(peer: HicachePeer, job: Job, until: int) -> bool:
        asked.append(job.id)
        return prefill(peer, job, until)

    monkeypatch.setattr(PEER, "prefill", noted)
    hand = Hand(PEER(PEER.draw(Draws(0, "config"), {"page": 4, "pages": 9}), Recorder()))
    for request, chunk in ((0, 0), (1, 4)):
        arrival = {"request": request, "tokens": [[request, 8]], "space": ""}
        play_entry(hand, operations(PEER), Entry("arrive", arrival))
        play_entry(hand, operations(PEER), Entry("admit", {"request": request, "chunk": chunk}))
    assert [job.stage for job in hand.jobs.values()] == ["idle", "idle"]
    assert asked == [1]


def test_only_an_admission_may_compute_nothing() -> None:
    for op, fine in (("admit", True), ("prefill", False)):
        tape = PeerTape("hicache", "here", {}, (Entry(op, {"request": 1, "chunk": 0}),))
        if fine:
            check(tape, operations(PEER))
        else:
            with pytest.raises(CallerError, match="chunk"):
                check(tape, operations(PEER))


def test_laws_are_judged_unless_they_are_not_asked(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(peer: object) -> None:
        raise AssertionError("judged")

    follower = followed_by(trace, "--host-pages 0")
    monkeypatch.setattr(PEER, "laws", broken)
    played(follower, judges=False)
    with pytest.raises(AssertionError):
        played(follower)
