"""The table of a third party: what its file says, and which cases a row of it is about."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from traces.cli import main
from traces.fidelity import third_party
from traces.fidelity.predicting import Compared, Outcome
from traces.fidelity.rules import row_rule
from traces.fidelity.setup import setup_of
from traces.fidelity.third_party import FILE, METRICS, by_length, scored
from traces.fidelity.workloads import load_of

from .rig import Capsys

# Medians of the file that the source published, counted apart from this project.
PUBLISHED = {
    "vidur": (11, 2.5, 4.0, 13.6),
    "blis-evolved": (40, 20.2, 19.9, 18.5),
    "aiconfigurator-estimate": (24, 14.3, 21.3, 652.6),
    "blis-roofline": (40, 45.7, 50.7, 304.9),
    "llm-optimizer-estimate": (30, 42.5, 56.0, 617.7),
}


def outcome(case: str, error: float) -> Outcome:
    figures = tuple(
        Compared(f"{metric}_mean_ms", metric, "prefix hits", "mean", 1.0, 1.0 + error)
        for metric in METRICS
    )
    return Outcome(case, "roofline", "judge", "", "A", "h100", "", "vllm", "", "", figures=figures)


def test_the_medians_of_the_others_are_those_that_the_source_published() -> None:
    found = scored([outcome(row.id, 0.07) for row in third_party.rows()])
    assert {
        one.simulator: (one.cases, *(round(100 * one.errors[name], 1) for name in METRICS))
        for one in found
        if one.simulator != third_party.HERE
    } == PUBLISHED
    assert all(one.here == pytest.approx(dict.fromkeys(METRICS, 0.07)) for one in found)
    ours = next(one for one in found if one.simulator == third_party.HERE)
    assert (ours.cases, ours.errors) == (40, ours.here)


def test_every_other_simulator_stands_beside_this_one_on_its_own_cases() -> None:
    """Vidur has no case of Mistral, so an error there is none in its row."""
    found = scored(
        [outcome(row.id, 0.5 if "62-" in row.id else -0.01) for row in third_party.rows()]
    )
    here = {one.simulator: one.here["e2e"] for one in found}
    assert here["vidur"] == pytest.approx(0.01)
    few = scored([outcome("62-general-stage0", 0.5), outcome("67-reasoning-whole", -0.01)])
    by_name = {one.simulator: one for one in few}
    assert (by_name["vidur"].cases, by_name["vidur"].here["e2e"]) == (1, pytest.approx(0.01))
    assert by_name["hicache"].errors["e2e"] == pytest.approx(0.255)


def test_time_per_token_is_that_of_the_configured_length() -> None:
    """Of 251 tokens, 250 take the 5 s after the first one: 20 ms each."""

    def case(itl: float) -> Outcome:
        given = {"e2e": (5.1, 9.0), "ttft": (0.1, 8.0), "itl": (7.0, itl)}
        figures = tuple(
            Compared(f"{name}_mean_ms", name, "prefix hits", "mean", *both)
            for name, both in given.items()
        )
        return replace(outcome("21-roleplay-whole", 0.0), figures=figures)

    assert by_length([case(0.022)]) == pytest.approx(0.1)
    assert by_length([case(0.022), case(0.02), case(0.012)]) == pytest.approx(0.1)


def test_every_case_can_be_predicted_as_it_ran() -> None:
    for row in third_party.rows():
        assert row_rule(row) == ""
        load = load_of(row)
        assert load is not None
        setup = setup_of(row, load.concurrency)
        blocks = row.limits["kv_blocks_of_16"]
        assert (setup.pool_tokens, setup.parallelism.tp) == (16 * blocks, row.tp)
        assert setup.token_budget == row.limits["max_num_batched_tokens"]
        assert (setup.engine.name, setup.max_running) == ("vllm", 128)
        given = row.workload["shared_prefix"]
        rates = row.workload["rate"]
        rates = rates if isinstance(rates, list) else [rates]
        assert len(load.jobs) == sum(rates) * given["seconds"]
        last = load.jobs[-1]
        assert (last.input_length, last.output_length) == (
            given["system"] + given["question"],
            given["output"],
        )
        assert last.arrival_ns < len(rates) * given["seconds"] * 1e9


def test_a_stage_of_a_case_is_a_case_of_its_own() -> None:
    names = [json.loads(line)["id"] for line in FILE.read_text().splitlines()]
    assert len(names) == len(set(names)) == 40
    assert sum(name.endswith("whole") for name in names) == 15


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("--data", "--third-party and --data do not go"),
        ("--summary", "--summary: expected --leave"),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    other: str, said: str, tmp_path: Path, capsys: Capsys
) -> None:
    assert main(["fidelity", "--third-party", other, str(tmp_path / "x")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
