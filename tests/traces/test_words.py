"""The sentences at the end of the reports of fuzz, twin and mutants say what the figures show."""

from __future__ import annotations

from typing import Any

from traces.devices import twin_report
from traces.fuzzing import conclusions
from traces.fuzzing.report import FailureGroup, Tally
from traces.fuzzing.work import FoundFailure
from traces.mutants import planted_report
from traces.mutants.planted_report import Row


def tally(sequences: int = 3, events: int = 1200, **found: int) -> Tally:
    """found: how often each kind of failure was found."""
    smallest = FoundFailure(11, "OWN-D", "text", "{}", "tape", 4)
    kinds = {(11, name): FailureGroup(times, 7, smallest) for name, times in found.items()}
    return Tally(sequences=sequences, events=events, kinds=kinds)


def test_a_run_without_failures_does_not_claim_more_than_it_did() -> None:
    told = conclusions.conclusions(tally(), complete=True, canary=False)
    assert told[0] == "No check failed in 3 sequences with 1,200 events."
    assert told[1].startswith("This does not prove that there is no bug.")


def test_a_run_without_checks_does_not_speak_of_checks() -> None:
    told = conclusions.conclusions(tally(), complete=True, canary=False, checks="off")
    assert (
        told[0] == "No sequence failed in 3 sequences with 1,200 events; no invariant was checked."
    )


def test_failures_are_counted_and_the_next_step_is_named() -> None:
    told = conclusions.conclusions(tally(own=2), complete=True, canary=False)
    assert told[0] == "2 sequences of 3 failed."
    assert told[1] == "Begin with this failure: shrink its tape, then explain the smaller one."
    several = conclusions.conclusions(tally(own=2, still=1), complete=True, canary=False)
    assert several[0] == "3 sequences of 3 failed in 2 ways."
    assert "the failure with the fewest entries" in several[1]


def test_a_run_that_ended_early_says_so_and_claims_nothing_without_sequences() -> None:
    told = conclusions.conclusions(tally(1), complete=False, canary=False)
    assert told[0] == "The run was interrupted after 1 sequence."
    assert told[1].startswith("No check failed in 1 sequence ")
    lost = conclusions.conclusions(tally(0), complete=False, canary=False, lost=True)
    assert lost == ["An error ended the run after 0 sequences."]


def test_missed_states_weaken_a_run_without_failures() -> None:
    missed = tally()
    missed.missed = ["no page free"]
    [told] = conclusions.conclusions(missed, complete=True, canary=False)
    assert told.startswith("No check failed, but the run did not reach states")


def test_a_canary_that_no_check_finds_is_a_warning() -> None:
    found = conclusions.conclusions(tally(1, own=1), complete=True, canary=True)
    assert found[0].startswith("The planted bug was found after 1 sequence,")
    survived = conclusions.conclusions(tally(), complete=True, canary=True)
    assert survived[0].startswith("No check found the planted bug in 3 sequences.")


def twin(**changes: Any) -> dict[str, Any]:
    way = {"count": 10, "measured_ns": 300, "predicted_ns": 100}
    document: dict[str, Any] = {
        "device": {"events": 373},
        "drift": {"before": {"d2h": 0.1}, "after": {"h2d": -0.2}},
        "copies": {
            "count": 20,
            "overall": {"d2h": way, "h2d": way | {"count": 0}},
            "shapes": {"outside": []},
            "outside_calibration": {"count": 0},
        },
    }
    return document | changes


def test_the_twin_says_how_far_off_its_times_are() -> None:
    told = twin_report.conclusions(twin())
    assert told == [
        "The device and the simulator took the same decisions over 373 events, and every byte "
        "compared was right.",
        "In sum, copies to host took 3.0 times as long as predicted.",
    ]


def test_the_twin_says_when_the_profile_does_not_fit_the_run() -> None:
    changed = twin_report.conclusions(twin(drift={"before": {"d2h": -0.26}, "after": {}}))
    assert any(line.startswith("Single copies took other times") for line in changed)
    other = twin()
    other["copies"]["shapes"]["outside"] = ["a pool"]
    assert twin_report.conclusions(other)[-1].startswith("The profile was measured on another")
    sizes = twin()
    sizes["copies"]["outside_calibration"]["count"] = 11
    assert twin_report.conclusions(sizes)[-1].startswith("Most copies have sizes")


def row(name: str, killed: bool) -> Row:
    return Row(name, 11 if killed else 0, "OWN-D", 4, 1, 7, 0.5)


def test_planted_bugs_that_nothing_sees_are_named() -> None:
    assert planted_report.conclusions([]) == []
    assert planted_report.conclusions([row("slot", True)]) == [
        "1 of 1 planted bug was found.",
        "The specification alone notices the tapes of 0, the checks alone those of 0.",
    ]
    told = planted_report.conclusions([row("slot", True), row("lock", False)])
    assert told[0] == "1 of 2 planted bugs were found."
    assert told[-1] == "Nothing sees lock."
