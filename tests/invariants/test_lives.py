"""Where a request ends, how, and what follows: each combination is counted under its name."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hicache.core.config import Config
from invariants.fuzz import play
from invariants.fuzz.ops import base
from invariants.fuzz.ops.requests import pack
from invariants.fuzz.reach import lives, probes, rates
from invariants.fuzz.tapes.tape import Act, Entry, Tape

OPS = base.load()
CONFIG = Config(1, (40,), (40,))
LATE = (Act(1000, 0),)
PROMPT = pack([7, 7, 7, 7, 7, 7, 7, 8])


def entry(op: str, **args: Any) -> Entry:
    return Entry(op, args, 1, False, LATE)


def on_host() -> list[Entry]:
    """A prompt is computed, copied to host, and evicted from device."""
    return [
        entry("arrive", request=0, tokens=PROMPT, space="", whole=False),
        entry("admit", request=0, chunk=8),
        entry("quiesce"),
        entry("finish", request=0, ahead=0),
        entry("quiesce"),
        entry("evict", tier=0, component="full", pages=40),
    ]


def interrupted(end: str, steps: list[str], then: list[str], **more: Any) -> Entry:
    args = {"request": 1, "tokens": PROMPT, "space": "", "whole": False, "cold": [], "chunk": 8}
    args |= {"polls": 0, "others": [], "clear": False, "pages": 2, "again": 9}
    return entry("interrupt", **{**args, "end": end, "steps": steps, "then": then, **more})


def seen(*entries: Entry) -> Counter[str]:
    outcome = play.replay(Tape(CONFIG, entries), OPS)
    assert outcome.failure is None, outcome.failure
    return outcome.hand.probes.seen


@pytest.mark.parametrize(
    ("end", "steps", "then", "name"),
    [
        ("abort", [], ["evict device"], "aborted in its pass and load, then device eviction"),
        ("abort", [], ["load"], "aborted in its pass and load, then reply of its load"),
        ("abort", ["pass"], ["evict host"], "aborted decoding in its load, then host eviction"),
        ("finish", ["pass"], ["again"], "finished decoding in its load, then admission"),
        ("retract", ["pass"], ["load"], "retracted decoding in its load, then reply of its load"),
        ("abort", ["load"], ["pass"], "aborted in its pass after its load, then reply of its pass"),
        ("load fails", [], ["pass"], "restarted by its load in its pass and load, then reply of "
         "its pass"),
        ("pass fails", [], ["load"], "restarted by its pass in its pass and load, then reply of "
         "its load"),
        ("abort", ["pass", "load", "grow"], ["flush"], "aborted decoding after a growth, then "
         "flush"),
    ],
)  # fmt: skip
def test_a_request_that_ends_during_a_load(
    end: str, steps: list[str], then: list[str], name: str
) -> None:
    found = seen(*on_host(), interrupted(end, steps, then))
    assert found[name] >= 1
    assert not seen(*on_host(), interrupted("none", steps, then))[name]


@pytest.mark.parametrize("end", ["abort", "load fails", "pass fails"])
def test_another_request_waits_for_the_load(end: str) -> None:
    way = {"abort": "aborted", "load fails": "restarted by its load"}.get(
        end, "restarted by its pass"
    )
    assert seen(*on_host(), interrupted(end, [], [], others=[2]))[f"{way} {lives.AWAITED}"] == 1
    assert not seen(*on_host(), interrupted(end, [], []))[f"{way} {lives.AWAITED}"]


def test_a_backup_lands_after_its_request_has_ended() -> None:
    fresh = pack([5, 5, 6])
    for end, way in (("abort", "aborted"), ("retract", "retracted"), ("finish", "finished")):
        found = seen(interrupted(end, ["pass"], ["backup"], tokens=fresh))
        assert found[f"{way} decoding in a backup, then {lives.BACKUP_REPLY}"] == 1


def test_pages_come_free_between_two_growths() -> None:
    """Another request holds all pages but one, and ends between the two growths."""
    whole = pack([3] * 35)
    other = [
        entry("arrive", request=0, tokens=whole, space="", whole=False),
        entry("admit", request=0, chunk=40),
        entry("quiesce"),
    ]
    steps = ["pass", "grow", "grow", "release", "grow"]
    prompt = pack([1, 2, 1])
    name = f"full: {lives.GROWTHS}"
    assert seen(*other, interrupted("none", steps, [], tokens=prompt))[name] == 1
    steps.remove("release")
    assert not seen(*other, interrupted("none", steps, [], tokens=prompt))[name]


def test_every_combination_is_required_once_it_is_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    one = next(name for name in rates.measured("full") if name.startswith("aborted in its pass"))
    monkeypatch.setattr(rates, "table", lambda: {"full": {"": 1000, one: 900}})
    played = {"full": 400}
    assert probes.missed({}, played, ("full",)) == [one]
    assert probes.missed({one: 1}, played, ("full",)) == []
