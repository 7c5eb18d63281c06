"""Fitted constants: known ones are found again, rows left out do not enter, the file is sound."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy", exc_type=ImportError)

import sim.engine_profiles as engine_profiles
from hicache.core.errors import CallerError
from sim.fitted import factors as fitted
from sim.fitted.factors import Factor
from sim.hardware import profile as hardware
from sim.physics.constants import defaults, family
from traces.cli import main
from traces.expected.table import parse
from traces.fidelity import fitting as room
from traces.fidelity import rows
from traces.fidelity.choosing import FIT, HALF, half, half_of
from traces.fidelity.figures import figures_of
from traces.fidelity.fitting import fit as fitting
from traces.fidelity.fitting import solving
from traces.fidelity.fitting.crossed import crossed
from traces.fidelity.fitting.fit import text_of
from traces.fidelity.fitting.parameters import _RULES, Parameter
from traces.fidelity.fitting.recording import Workers, recorded
from traces.fidelity.fitting.response import with_response
from traces.fidelity.fitting.samples import HOST, Sample, _prepared, sharing
from traces.fidelity.fitting.table import Table
from traces.fidelity.predicting import Task, predict
from traces.fidelity.running import predicted, record, roofline

from .rig import Capsys, Patch

TRUE = (
    Factor("product.*.memory", ("h100",), 0.8, None, 1, ()),
    Factor("engine.step_host_ns", ("vllm",), 3.0, None, 1, ()),
)


def row(number: int, model: str = "qwen3-32b", **change: object) -> dict[str, object]:
    tp = (1, 2, 4, 8)[number % 4]
    given = {
        "id": f"made-{model}-{number}",
        "grade": "A",
        "kind": "serving-closed-loop",
        "engine": "vllm",
        "engine_version": "0.10.2",
        "gpu": "H100",
        "gpu_count": tp,
        "model": model,
        "hicache_model": model,
        "hicache_hardware": "h100",
        "weights": "fp8",
        "tp": tp,
        "pp": 1,
        "workload": {
            "isl": (128, 512)[number % 2],
            "osl": 16,
            "concurrency": (1, 4, 16)[number % 3],
            "num_prompts": 32,
            "distribution": "constant",
        },
        "limits": {"max_num_batched_tokens": 8192, "max_num_seqs": 64},
        "metrics": {"mean_ttft_ms": 1.0, "mean_tpot_ms": 1.0},
        "prefix_cache": False,
    }
    return given | change


def measured(
    folder: Path, made: Sequence[dict[str, object]], given: tuple[Factor, ...] = TRUE
) -> list[rows.Row]:
    """These rows with the figures of replays under these factors."""
    found = []
    for one, (each, setup, load) in zip(made, _prepared(read(folder, made), given), strict=True):
        replayed, _ = record(setup, load, roofline(setup, given))
        found.append(
            one | {"metrics": {f.name: predicted(replayed, f) * 1000 for f in figures_of(each)}}
        )
    return read(folder, found)


def read(folder: Path, made: Sequence[dict[str, object]]) -> list[rows.Row]:
    file = folder / "measurements.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in made))
    return rows.read(file)


def samples_of(given: Sequence[rows.Row], factors: tuple[Factor, ...] = ()) -> list[Sample]:
    return recorded(given, factors, Workers(), lambda done: None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[rows.Row]:
    return measured(tmp_path_factory.mktemp("rows"), [row(number) for number in range(36)])


@pytest.mark.one_in(32)
def test_known_constants_are_found_again(made: list[rows.Row]) -> None:
    samples = samples_of(made)
    solution = fitting.solve(samples)
    found = fitting.factors_of(samples, solution)
    table = Table(samples, solution.parameters)
    errors = np.abs(np.log(table.predict(solution.logs) / table.measured))
    assert np.median(errors) < 0.005
    assert errors.max() < 0.02
    table = Table(samples, [])
    assert np.median(np.abs(np.log(table.predict(np.zeros(0)) / table.measured))) > 0.1
    labels = frozenset(("hopper", "h100", "vllm", "vllm@0.10.2", "qwen3-32b"))
    for one, least, most in zip(TRUE, (0.7, 1.1), (0.97, 3.5), strict=True):
        name = one.constant.replace("*", "fp8")
        assert least < fitted.total(name, labels, found) < most, name
    assert {group for one in found for group in one.groups} == {"h100|qwen3-32b|vllm"}
    assert any("qwen3-32b" in one.where for one in found)


@pytest.mark.parametrize("concurrency", [1, 16])
def test_a_sample_predicts_the_replay_that_it_was_recorded_from(
    concurrency: int, tmp_path: Path
) -> None:
    """Passes that are computed at one instant have their own time of the host, all of them."""
    load = {"isl": 512, "osl": 200, "concurrency": concurrency, "num_prompts": 3 * concurrency}
    models = ("qwen3-32b", "llama-3.1-8b")
    given = [row(1, name, workload=load | {"distribution": "constant"}) for name in models]
    samples = samples_of(measured(tmp_path, given, ()))
    table = Table(samples, [])
    assert len(table.figures) == 4
    assert table.predict(np.zeros(0)) == pytest.approx(table.measured, rel=0.01)


IN_BUNCHES = Factor("engine.request_host_ns", ("vllm",), 8.0, None, 1, ())


def in_bunches(folder: Path, given: tuple[Factor, ...]) -> list[rows.Row]:
    """Runs with so much of the host's time for each request that requests come together."""
    load = {"osl": 32, "concurrency": 32, "num_prompts": 320, "distribution": "uniform 0.8*L"}
    lengths = (128, 512, 1024, 256)
    found = [row(n, workload=load | {"isl": isl}) for n, isl in enumerate(lengths)]
    return measured(folder, found, given)


@pytest.mark.one_in(16)
def test_ttft_grows_by_more_than_the_time_of_one_request_where_they_come_together(
    tmp_path: Path,
) -> None:
    """Between the two recordings a prediction is nearer to the replay with what they tell, and at
    the second one it is that."""
    half_way = in_bunches(tmp_path, (replace(IN_BUNCHES, factor=5.0),))
    again = samples_of(half_way, (IN_BUNCHES,))
    with_it = with_response(samples_of(half_way), again, (IN_BUNCHES,))
    ttft, tpot = ({one.figures[n].requests for one in with_it} for n in range(2))
    assert 1 < min(ttft) < 3 < max(ttft) <= 8
    assert tpot == {0.0}
    there = [Parameter(IN_BUNCHES.constant, IN_BUNCHES.where, 1.0)]
    errors = {}
    for name, some in (("with", with_it), ("without", again)):
        table = Table(some, there)
        off = table.predict(np.log([5.0])) / table.measured - 1
        errors[name] = np.abs(off[[one.what == "ttft" for one in table.figures]]).mean()
    assert errors["with"] < 0.7 * errors["without"]
    same = in_bunches(tmp_path, (IN_BUNCHES,))
    table = Table(with_it, there)
    measured_there = Table(samples_of(same), []).measured
    assert table.predict(np.log([8.0])) == pytest.approx(measured_there, rel=0.02)


@pytest.mark.one_in(16)
def test_the_second_round_finds_what_passes_of_the_defaults_hide(tmp_path: Path) -> None:
    """Requests come in other bunches than with the defaults; a fit to those errs by more."""
    given = in_bunches(tmp_path, (IN_BUNCHES,))
    found = {
        "first": fitting.fitted_to(samples_of(given), ()),
        "both": fitting.fit(given).factors,
    }
    errors = {name: np.abs(_errors(given, factors)).mean() for name, factors in found.items()}
    assert errors["both"] < 0.15
    assert errors["both"] < 0.5 * errors["first"]


def test_passes_are_recorded_with_the_factors_of_kernels_too(tmp_path: Path) -> None:
    """Requests come in other bunches where passes take longer."""
    given = (IN_BUNCHES, Factor("product.*.memory", ("h100",), 0.3, None, 1, ()))
    table = Table(
        samples_of(in_bunches(tmp_path, given)[3:], given),
        [Parameter(one.constant, one.where, 1.0) for one in given],
    )
    logs = np.log([one.factor for one in given])
    assert table.predict(logs) == pytest.approx(table.measured, rel=0.02)


def test_the_search_begins_where_it_is_told(tmp_path: Path, monkeypatch: Patch) -> None:
    begun = []

    def search(errors: Any, logs: Any, *given: Any, **settings: Any) -> Any:
        begun.append(logs)
        return SimpleNamespace(x=logs)

    monkeypatch.setattr(solving, "least_squares", search)
    begin = [Factor("product.*.memory", ("h100",), 0.5, None, 1, ())]
    found = solving.solve(samples_of(read(tmp_path, [row(0)])), begin)
    at = [(one.constant, one.where) for one in found.parameters].index(
        (begin[0].constant, begin[0].where)
    )
    assert begun[0][at] == pytest.approx(np.log(0.5))
    assert np.count_nonzero(begun[0]) == 1


def test_rows_share_a_replay_with_the_defaults_alone(tmp_path: Path) -> None:
    """With factors requests may come in other bunches on another number of ranks."""
    given = read(tmp_path, [row(0), row(12, tp=2, gpu_count=2)])
    assert [len(each) for each in sharing(given, ())] == [2]
    assert [len(each) for each in sharing(given, (IN_BUNCHES,))] == [1, 1]


def test_every_constant_of_a_rule_is_one_that_runs_have(made: list[rows.Row]) -> None:
    names = {name for one in ("ampere", "hopper", "blackwell") for name in defaults(one).named()}
    names |= {f"engine.{name}" for name in HOST}
    for rule in _RULES:
        assert any(fitted.matches(rule.constant, name) for name in names), rule


def _errors(given: Sequence[rows.Row], factors: tuple[Factor, ...]) -> list[float]:
    """Of replays under these factors, as the command predicts."""
    return [
        one.error
        for each in given
        for one in predict(Task(each, "roofline", factors)).figures
        if not one.rule
    ]


@pytest.mark.one_in(16)
def test_rows_of_both_halves_enter_in_any_order_and_on_any_number_of_workers(
    made: list[rows.Row], tmp_path: Path
) -> None:
    other = read(tmp_path, [row(0, "llama-3.1-8b"), row(1, "llama-3.1-8b", grade="C")])
    some = made[:4]
    assert {half(one) for one in [*some, other[0]]} == {"fit", "judge"}
    text = text_of(fitting.fit([*some, other[0]]).factors)
    assert text_of(fitting.fit([*other, *reversed(some)], Workers(jobs=2)).factors) == text
    assert text_of(fitting.fit(some).factors) != text


@pytest.mark.one_in(16)
def test_work_that_takes_longer_is_more_of_the_progress() -> None:
    told: list[float] = []
    assert Workers().done(str, [1, 2, 3], told.append, [2, 1, 1]) == ["1", "2", "3"]
    assert Workers().done(str, [1, 2], told.append) == ["1", "2"]
    assert told == [0.5, 0.75, 1.0, 0.5, 1.0]


def test_the_progress_of_a_fit_is_in_percent(monkeypatch: Patch) -> None:
    shown: list[int] = []
    monkeypatch.setattr(room, "progress", lambda *of: nullcontext(shown.append))
    with room._told(4) as tell:
        tell(0, 0.5)
        tell(3, 1.0)
    assert shown == [12, 100]


def test_no_prediction_of_the_fit_is_above_a_peak(made: list[rows.Row]) -> None:
    """As in the simulator, where a factor ends at the data sheet; so it has no slope there."""
    samples = samples_of(made[:4])
    found = [Parameter("product.*.memory", ("h100",), 0.1)]
    table = Table(samples, found)
    at_peak, beyond = (table.slopes(np.log([factor])) for factor in (2.0, 4.0))
    assert (at_peak[0] == beyond[0]).all()
    assert not at_peak[1].any()
    assert table.slopes(np.log([0.5]))[1].any()


@pytest.mark.one_in(16)
def test_a_constant_above_its_peak_is_told_of_the_runs_that_have_it(made: list[rows.Row]) -> None:
    wild = Factor("product.fp8.memory", ("h100",), 3.0, None, 1, ())
    default = defaults("hopper").named()["product.fp8.memory"]
    (found,) = fitting.beyond(samples_of(made[:4]), [wild])
    assert found == (
        "product.fp8.memory",
        "h100|qwen3-32b|vllm",
        pytest.approx(3 * default, abs=1e-4),
    )
    for other in (replace(wild, where=("a100",)), replace(wild, factor=1.0)):
        assert fitting.beyond(samples_of(made[:4]), [other]) == []


@pytest.mark.one_in(16)
@pytest.mark.parametrize("by", ["groups", "rows"])
def test_what_is_left_out_has_no_part_in_what_predicts_it(by: str, tmp_path: Path) -> None:
    """A row that is far off changes the constants of all rows that it is fitted with, and not those
    of its own group, or half."""
    given = [row(number, model) for model in ("qwen3-32b", "llama-3.1-8b") for number in range(4)]
    before = crossed(read(tmp_path, given), by, Workers())
    assert sorted(before) == sorted(str(one["id"]) for one in given)
    metrics = {"mean_ttft_ms": 50.0, "mean_tpot_ms": 30.0}
    after = crossed(read(tmp_path, [given[0] | {"metrics": metrics}, *given[1:]]), by, Workers())
    alike = {
        str(one["id"])
        for one in given
        if (one["model"] if by == "groups" else _side(str(one["id"])))
        == (given[0]["model"] if by == "groups" else _side(str(given[0]["id"])))
    }
    assert 0 < len(alike) < len(given)
    assert {name for name in before if before[name] == after[name]} == alike


@pytest.mark.one_in(16)
def test_errors_to_expect_are_those_of_rows_that_were_left_out(
    tmp_path: Path, capsys: Capsys
) -> None:
    """A sample is of the rows that are judged; constants are fitted to all others."""
    models = ("qwen3-32b", "llama-3.1-8b")
    read(tmp_path, [row(number, model) for model in models for number in range(4)])
    found = {}
    for words in ((), ("--sample", "2")):
        out, table = tmp_path / "out.json", tmp_path / "errors.json"
        command = ["fidelity", "--data", str(tmp_path), "--leave-out", "groups", "--jobs", "1"]
        command += ["--json", str(out), "--summary", str(table), *words]
        assert main(command) == 0
        groups = parse(table.read_text(), "errors.json")
        assert {name for one in groups for name in one.models} == set(models)
        rows = json.loads(out.read_text())["rows"]
        found[len(rows)] = {
            (one["id"], figure["name"]): figure["error"]
            for one in rows
            for figure in one["figures"]
        }
    assert sorted(found) == [2, 8]
    assert found[2].items() <= found[8].items()
    capsys.readouterr()


def _side(name: str) -> int:
    return sha256(name.encode()).digest()[0] % 2


@pytest.mark.one_in(16)
@pytest.mark.parametrize("which", range(4))
def test_a_group_is_left_out_where_a_side_has_several(which: int, tmp_path: Path) -> None:
    models = ("qwen3-32b", "llama-3.1-8b", "qwen3-8b", "mistral-7b")
    given = [row(number, model) for model in models for number in range(2)]
    before = crossed(read(tmp_path, given), "groups", Workers())
    far = {"metrics": {"mean_ttft_ms": 50.0, "mean_tpot_ms": 30.0}}
    moved = [one | far if n == 2 * which else one for n, one in enumerate(given)]
    after = crossed(read(tmp_path, moved), "groups", Workers())
    alike = {str(one["id"]) for one in given if one["model"] == models[which]}
    assert {name for name in before if before[name] == after[name]} == alike


def test_a_group_without_rows_in_the_other_half_is_no_known_one(tmp_path: Path) -> None:
    given = [row(number) for number in range(4)]
    alone = row(0, "llama-3.1-8b")
    found = crossed(read(tmp_path, [*given, alone]), "rows", Workers())
    assert sorted(found) == sorted(str(one["id"]) for one in given)
    with pytest.raises(CallerError, match="--leave-out groups: expected rows of at least two gr"):
        crossed(read(tmp_path, given), "groups", Workers())


@pytest.mark.parametrize("change", [{"grade": "C"}, {"kind": "copies"}])
def test_without_a_row_to_fit_nothing_is_written(
    change: dict[str, object], tmp_path: Path, capsys: Capsys
) -> None:
    given = row(1, **change)
    data, out = tmp_path / rows.FILE, tmp_path / "fitted.json"
    data.write_text(json.dumps(given) + "\n")
    assert main(["fidelity", "--data", str(data), "--fit", str(out)]) == 2
    said = capsys.readouterr().err
    assert "--fit: expected published times of runs, found none" in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_a_fit_writes_nothing_else(tmp_path: Path, capsys: Capsys) -> None:
    data, out = tmp_path / rows.FILE, tmp_path / "fitted.json"
    data.write_text(json.dumps(row(1)) + "\n")
    command = ["fidelity", "--data", str(data), "--fit", str(out)]
    for other in (["--json", str(tmp_path / "x")], ["--only", "h100"], ["--sample", "3"]):
        assert main([*command, *other]) == 2
        assert f"--fit and {other[0]} do not go together" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("file", [fitted.FILE, HALF])
def test_the_files_are_well_formed_and_the_half_names_fit_groups_alone(file: Path) -> None:
    given = fitted.read(file)
    assert given
    kinds = {name for one in ("ampere", "hopper", "blackwell") for name in defaults(one).named()}
    fields = {f"engine.{name}" for name in engine_profiles.get("vllm").__slots__}
    for one in given:
        assert any(fitted.matches(one.constant, name) for name in kinds | fields), one.constant
        for group in one.groups:
            assert file != HALF or half_of(group) == FIT, group
    document = json.loads(file.read_text())
    assert text_of(given) == file.read_text()
    assert set(document) == {"format", "groups", "constants"}


@pytest.mark.parametrize("name", hardware.names())
@pytest.mark.parametrize("engine", ["vllm@0.10.2", "sglang", "trtllm", "plain"])
def test_every_run_gets_constants(name: str, engine: str) -> None:
    generation = family(hardware.get(name))
    profile = fitted.engine(engine_profiles.get(engine), name, "llama-3.1-8b")
    constants = fitted.roofline(defaults(generation), generation, name, profile, "llama-3.1-8b")
    assert set(constants.named()) == set(defaults(generation).named())
    if engine == "plain":
        assert profile == engine_profiles.get("plain")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[", "JSON"),
        ("[]", "expected an object"),
        ('{"format": 2}', "format: expected 1, found 2"),
        ('{"format": 1, "groups": [], "constants": [{}]}', "a name of a constant"),
        ('{"format": 1, "groups": [[]], "constants": []}', r"groups\[0\]: expected a text"),
        pytest.param("[" * 100_000, "JSON", id="deep"),
    ],
)
def test_a_broken_file_is_one_line(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "fitted.json"
    file.write_text(text)
    with pytest.raises(CallerError, match=expected) as error:
        fitted.read(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"factor": 0.0}, "factor: expected a number of at least 0.001"),
        ({"factor": "1"}, "factor: expected a number"),
        ({"rows": 0}, "rows: expected an integer of at least 1"),
        ({"default": "x"}, "default: expected a finite number"),
        ({"groups": [1]}, r"groups\[0\]: expected 0, found 1"),
        ({"groups": 7}, "groups: expected a list"),
        ({"where": "h100"}, "where: expected a list"),
        ({"where": [["h100"]]}, r"where\[0\]: expected a text"),
        ({"constant": "engine.nothing"}, "one of engine.launch_ns"),
        ({"constant": "engine.name"}, "one of engine.launch_ns"),
        ({"constant": 3}, "a name"),
    ],
)
def test_a_broken_constant_is_named(
    change: dict[str, object], expected: str, tmp_path: Path
) -> None:
    entry = {
        "constant": "product.fp8.compute",
        "where": ["hopper"],
        "factor": 1.1,
        "default": 0.5,
        "rows": 3,
        "groups": [0],
    }
    document = {"format": 1, "groups": ["a|b|c"], "constants": [entry | change]}
    file = tmp_path / "fitted.json"
    file.write_text(json.dumps(document))
    with pytest.raises(CallerError, match=expected):
        fitted.read(file)
