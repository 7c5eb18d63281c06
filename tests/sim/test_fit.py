"""`python -m sim.fit`: known constants are found again, and what was fitted predicts the replay.
The table of errors that reports read."""

import json
import sys
from pathlib import Path
from statistics import fmean

import pytest
from msgspec import convert
from msgspec.structs import replace

pytest.importorskip("scipy", exc_type=ImportError)

from sim import fitted
from sim.fit import __main__ as script
from sim.fit.replays import replay
from sim.fit.rows import Run, read
from sim.fit.solving import fit, predicted
from sim.fitted import Factor
from tests.bench.error_bars import table, within_bars
from traces.error_bars import Group, Validated
from traces.results.record import ErrorOf

TRUE = (Factor("product.*.memory", ("h100",), 0.8), Factor("engine.step_host_ns", ("vllm",), 3.0))


def made(number: int, **change: object) -> dict[str, object]:
    tp = (1, 2, 4, 8)[number % 4]
    # of 5, half of the answers have no time between tokens
    outputs, form = (2, "uniform") if number == 5 else (16, "constant")
    load = {"isl": (128, 512)[number % 2], "osl": outputs, "num_prompts": 32}
    values = {
        "id": f"made-{number:02}",
        "grade": "A",
        "kind": "serving-closed-loop",
        "engine": "vllm",
        "engine_version": "0.10.2",
        "gpu": "H100 SXM 80GB",
        "hicache_hardware": "h100",
        "gpu_count": tp,
        "hicache_model": "qwen3-32b",
        "weights": "fp8 (blocks)",
        "tp": tp,
        "workload": load | {"concurrency": (1, 4, 16)[number % 3], "distribution": form},
        "limits": {"max_num_batched_tokens": 8192, "max_num_seqs": 64},
        "metrics": {"mean_ttft_ms": 1.0, "mean_tpot_ms": 1.0, "p99_ttft_ms": 9.0},
    }
    return values | change


def written(folder: Path, rows: list[dict[str, object]]) -> Path:
    file = folder / "measurements.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def replayed(run: Run, factors: tuple[Factor, ...]) -> dict[str, float]:
    """Mean times of a replay under these factors, in milliseconds."""
    requests = replay(run, factors)[0]
    several = [request for request in requests if request.output_length > 1]
    decoded = [
        (request.finish_ns - request.first_token_ns) / (request.output_length - 1)
        for request in several
    ]
    waited = [request.first_token_ns - request.arrival_ns for request in requests]
    return {"mean_ttft_ms": fmean(waited) / 1e6, "mean_tpot_ms": fmean(decoded) / 1e6}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose figures are those of replays under TRUE."""
    folder = tmp_path_factory.mktemp("rows")
    value = [made(number) for number in range(12)]
    runs = read([written(folder, value)])
    pairs = zip(value, runs, strict=True)
    return written(folder, [row | {"metrics": replayed(run, TRUE)} for row, run in pairs])


def test_the_fit_and_the_replay_agree(data: Path) -> None:
    """On figures of replays with other constants, which a fit finds again."""
    runs = read([data])
    factors, samples = fit(runs, 2)
    for sample, run in zip(samples, runs, strict=True):
        took = predicted([sample], factors)
        assert took == pytest.approx([figure.measured for figure in sample.figures], rel=0.03)
        again = replayed(run, factors)
        assert took == pytest.approx([number / 1000 for number in again.values()], rel=0.03)
    measured = [figure.measured for each in samples for figure in each.figures]
    pairs = zip(predicted(samples, ()), measured, strict=True)
    assert fmean(abs(took / number - 1) for took, number in pairs) > 0.1
    labels = frozenset(("hopper", "h100", "vllm", "vllm@0.10.2", "qwen3-32b"))
    for factor, least, most in zip(TRUE, (0.7, 1.1), (0.97, 3.5), strict=True):
        name = factor.constant.replace("*", "fp8")
        assert least < fitted.total(name, labels, factors) < most, name


def test_the_script_writes_constants_and_prints_errors(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join(data.read_text().splitlines(keepends=True)[:4]))
    out = tmp_path / "out.json"
    words = ["fit", str(few), "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", [*words, "-o", str(out)])
    script.main()
    factors = fitted.read(out)
    assert fitted.text_of(factors) == out.read_text()
    assert factors
    _, *of_fitted, _, tpot, ttft = capsys.readouterr().out.splitlines()
    for row, name in zip((*of_fitted, tpot, ttft), ("tpot", "ttft") * 2, strict=True):
        assert row.split()[:2] == [name, "4"]
    errors = [float(row.split()[2].removesuffix("%")) for row in (of_fitted[0], tpot)]
    assert errors[0] < errors[1]  # without a row of its server, of which there are four here
    monkeypatch.setattr(sys, "argv", words)
    script.main()  # the shipped constants, of which no row was made
    _, shipped, *_ = capsys.readouterr().out.splitlines()
    assert float(shipped.split()[2].removesuffix("%")) > errors[0]


def test_rows_that_cannot_be_replayed_are_left_out(tmp_path: Path) -> None:
    changes = [
        {"note": "temperature 0.8 and top_p 0.95"},
        {"hicache_hardware": "h200"},
        {"hicache_model": "nobodys-model"},
        {"workload": {"isl": 128, "osl": 16}},
        {"workload": {"isl": 128, "osl": 16, "concurrency": 65}, "limits": {}},
        {"grade": "C"},
        {"kind": "kernel: bf16 GEMM"},
    ]
    rows = [made(number, **change) for number, change in enumerate([{}, *changes])]
    assert [run.id for run in read([written(tmp_path, rows)])] == ["made-00"]


def test_a_table_has_the_median_of_its_runs_and_nine_tenths_of_more() -> None:
    """Those of all ranks with this load, or of all loads where these are fewer than five."""
    run = Validated("roofline", "h100", "vllm", "llama-3.1-70b", 4, "fp8", "9 to 64")
    runs = [(replace(run, ranks=1 + at % 2), "tpot", at / 100) for at in range(10)]
    few = [(replace(run, load="1"), "tpot", error) for error in (-0.05, 0.03)]
    text = table([*runs, *few, (replace(run, queueing=0.6), "ttft", 0.2)])
    groups = convert(json.loads(text)["groups"], list[Group])
    result = {
        (group.ranks, group.load, group.saturated): group
        for group in groups
        if group.engine == "vllm"
    }
    assert len(groups) == 2 * len(result) == 8
    assert result[1, "9 to 64", False].errors == {"tpot": ErrorOf(5, 0.04, 0.09)}
    assert result[4, "1", False].errors == {"tpot": ErrorOf(2, 0.04, 0.09)}
    assert result[4, "9 to 64", True].errors == {"ttft": ErrorOf(1, 0.2, 0.2)}
    assert within_bars(runs, [*few, (run, "tpot", 0.1)]) == {(False, True): 2, (False, False): 1}
