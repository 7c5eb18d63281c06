"""The states that sequences must reach: each is counted under its name, and a run that misses one
that it owes fails.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from hicache.core.config import Config
from invariants.fuzz import play
from invariants.fuzz.ops import base
from invariants.fuzz.ops.requests import pack
from invariants.fuzz.reach import gauges, lives, probes, rates
from invariants.fuzz.swarm import COMPONENTS, draw_swarm
from invariants.fuzz.tapes.tape import Act, Entry, Tape

OPS = base.load()
# States that matter, which some dozens of sequences must meet.
NAMED = (
    "tombstone healed",
    "aux-only load",
    "landed before its reply",
    "write-back while loading",
    "garbage locked",
    "split under a leg",
    "window cut for a short pool",
    "branch checkpoint",
    "checkpoint slot refilled in decode",
    "Load of full by AdmitWanted",
    "Load of several nodes",
    "Backup of full by PrefillDone",
    "Backup of several nodes",
    "full demoted from device by EvictWanted",
    "swa demoted from device by EvictWanted",
    "mamba demoted from device by EvictWanted",
    "restarted by LoadDone",
    "restarted by PrefillDone",
    "Granted by PagesWanted",
    "KvRemoved of device",
    "AdmitWanted refused: no_pages of full",
    "AdmitWanted refused: no_pages of swa",
    "AdmitWanted refused: no_pages of mamba",
    "AdmitWanted refused: writing_back of full",
    "AdmitWanted refused: arriving of full",
    "AdmitWanted refused: too_large of full",
    "failed LoadDone",
    "failed BackupDone",
    "failed PrefillDone",
    "Admitted below the known prefix",
)


def test_the_measured_names_are_many_and_of_their_components() -> None:
    table = rates.table()
    assert {tuple(kind.split(",")) for kind in table} == set(COMPONENTS)
    assert all(0 < count <= row[""] for row in table.values() for count in row.values())
    assert set(NAMED) <= set(rates.measured())
    for components in COMPONENTS:
        names = rates.measured(*components)
        assert len(names) >= 500
        for absent in {"swa", "mamba"} - set(components):
            assert not [name for name in names if absent in name.replace("+", " ").split()]


def test_a_missed_name_fails_a_run_after_enough_sequences() -> None:
    seen = dict.fromkeys(rates.measured("full"), 1)
    enough, few = {"full": 20_000}, {"full": 10}
    assert probes.missed(seen, enough, ("full",)) == []
    seen["split under a leg"] = 0
    assert probes.unreached(seen, ("full",)) == ["split under a leg"]
    assert probes.missed(seen, enough, ("full",)) == ["split under a leg"]
    assert probes.missed(seen, few, ("full",)) == []
    assert probes.missed({}, {}) == []


def test_a_short_run_requires_only_frequent_names() -> None:
    """A state that one in ten sequences reaches is owed by 400, one in a thousand is not."""
    reached = {
        "full": {"": 10_000, "common": 1000, "rare": 10, "lucky": 1},
        "full,swa": {"": 10_000, "common": 0, "rare": 10_000},
    }
    assert rates.owed("common", {"full": 400}, reached)
    assert not rates.owed("common", {"full": 100}, reached)
    assert not rates.owed("common", {"full,swa": 10**6}, reached)
    assert not rates.owed("rare", {"full": 400}, reached)
    assert rates.owed("rare", {"full": 400, "full,swa": 25}, reached)
    assert not rates.owed("lucky", {"full": 10**6}, reached)
    assert not rates.owed("unheard of", {"full": 10**6}, reached)
    assert not rates.owed("common", {"another": 10**6}, reached)


def test_a_required_name_is_missed_by_chance_at_most_once_in_a_million() -> None:
    for count in (14, 40, 400, 4000):
        low, sequences = rates.floor(count), 20_000
        assert 0 <= low < count
        due = next((n for n in range(1, 10**6) if n * low / sequences >= rates.CERTAIN), None)
        if due is not None:
            assert (1 - count / sequences) ** due < 1e-6


@pytest.mark.parametrize(("sequences", "least"), [(400, 150), (2000, 200), (20_000, 250)])
def test_a_minute_of_fuzzing_requires_most_names(sequences: int, least: int) -> None:
    played = dict.fromkeys(rates.table(), sequences // len(COMPONENTS))
    assert sum(rates.owed(name, played) for name in rates.measured()) >= least


@dataclass
class Run:
    """What 120 sequences come to."""

    seen: Counter[str] = field(default_factory=Counter)
    readings: gauges.Readings = field(default_factory=Counter)
    events: int = 0


@pytest.fixture(scope="module")
def run() -> Run:
    made = Run()
    weights = {name: one.weight for name, one in OPS.items()}
    for seed in range(120):
        outcome = play.generate(draw_swarm(seed, weights), OPS, seed, 60, "off")
        assert outcome.failure is None, outcome.failure
        made.seen += outcome.hand.probes.seen
        outcome.hand.gauges.end()
        made.readings += outcome.hand.gauges.readings
        made.events += outcome.hand.events
    return made


# Wide bounds: a generator that is legal, fast and blind is out of them.
AUDIT = {
    gauges.DEPTH: (90, 3, 40),
    gauges.NODES: (90, 5, 60),
    gauges.LENGTH: (90, 3, 40),
    gauges.HIT: (90, 2, 30),
    gauges.LOADED: (50, 1, 12),
    gauges.FLIGHTS: (90, 2, 12),
    gauges.LOADING: (100, 1, 12),
    gauges.DEVICE: (50, 30, 100),
    gauges.HOST: (90, 20, 100),
    gauges.MOST_NODES: (90, 10, 200),
    gauges.EVENTS: (50, 60, 400),
    gauges.ADMITTED: (50, 6, 60),
    gauges.HITTING: (50, 20, 80),
}


@pytest.mark.one_in(64)
@pytest.mark.parametrize("quantity", gauges.QUANTITIES)
def test_the_generator_reaches_the_expected_bounds(run: Run, quantity: str) -> None:
    percent, least, most = AUDIT[quantity]
    assert least <= gauges.quantile(run.readings, quantity, percent) <= most


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        (gauges.LEAST_DEVICE, 1, 20),
        (gauges.SOME_LEAST, 6, 40),
        (gauges.NO_HOST, 3, 40),
        (gauges.ONE_PAGE_HOST, 3, 40),
    ],
)
def test_a_share_of_the_pools_is_as_small_as_is_legal(
    run: Run, name: str, least: float, most: float
) -> None:
    assert least <= gauges.share(run.readings, name) <= most


@pytest.mark.parametrize(
    ("names", "least", "most"),
    [
        (("LoadDone", "failed LoadDone"), 5, 80),
        (("BackupDone", "failed BackupDone"), 20, 150),
        (("PrefillDone", "failed PrefillDone"), 60, 300),
        (("AdmitWanted refused: arriving of full",), 1, 30),
        (("load and backup at once",), 5, 200),
        (("Retracted",), 5, 80),
        (("EvictWanted",), 50, 300),
    ],
)
def test_no_kind_of_event_is_too_rare(
    run: Run, names: tuple[str, ...], least: float, most: float
) -> None:
    """Of 1,000 events, so many; loads were 3, and two that want one prefix nearly none."""
    assert least <= gauges.per_thousand(run.seen, names, run.events) <= most


def test_quantiles_use_the_readings_of_one_quantity() -> None:
    readings: gauges.Readings = Counter({("a", 1): 90, ("a", 5): 10, ("b", 7): 1})
    found = [gauges.quantile(readings, "a", percent) for percent in (1, 90, 91, 100)]
    assert found == [1, 1, 5, 5]
    assert gauges.quantile(readings, "b", 50) == 7
    assert gauges.quantile(readings, "c", 50) == 0


def test_most_names_are_reached_soon_and_those_that_matter(run: Run) -> None:
    assert len(probes.unreached(run.seen)) < len(rates.measured()) * 2 // 5
    assert not [name for name in NAMED if not run.seen[name]]


def test_contradictory_states_are_not_counted_together(run: Run) -> None:
    counted = run.seen
    assert counted["Prefill of zero tokens"] <= counted["Prefill"]
    assert counted["split under a lock"] <= counted["split"]
    assert counted["Admitted with a load beside the backbone"] == counted["aux-only load"]


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


def met(*entries: Entry) -> Counter[str]:
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
    found = met(*on_host(), interrupted(end, steps, then))
    assert found[name] >= 1
    assert not met(*on_host(), interrupted("none", steps, then))[name]


@pytest.mark.parametrize("end", ["abort", "load fails", "pass fails"])
def test_another_request_waits_for_the_load(end: str) -> None:
    way = {"abort": "aborted", "load fails": "restarted by its load"}.get(
        end, "restarted by its pass"
    )
    assert met(*on_host(), interrupted(end, [], [], others=[2]))[f"{way} {lives.AWAITED}"] == 1
    assert not met(*on_host(), interrupted(end, [], []))[f"{way} {lives.AWAITED}"]


def test_a_backup_lands_after_its_request_has_ended() -> None:
    fresh = pack([5, 5, 6])
    for end, way in (("abort", "aborted"), ("retract", "retracted"), ("finish", "finished")):
        found = met(interrupted(end, ["pass"], ["backup"], tokens=fresh))
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
    assert met(*other, interrupted("none", steps, [], tokens=prompt))[name] == 1
    steps.remove("release")
    assert not met(*other, interrupted("none", steps, [], tokens=prompt))[name]
