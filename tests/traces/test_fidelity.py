"""`hicache fidelity`: small tables of published rows that are made here, and what it says."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.fitted.factors import Factor
from traces.cli import main
from traces.fidelity import table
from traces.fidelity.choosing import HALVES, chosen, half_of, sampled
from traces.fidelity.figures import figures_of
from traces.fidelity.judging import coverage, summary, tails
from traces.fidelity.predicting import Compared, Outcome, Task, predict
from traces.fidelity.rows import Row, read
from traces.fidelity.rules import FIGURE_RULES, NOT_FIRST, RULES, figure_rule, row_rule
from traces.fidelity.single import hit_rate

from .rig import Capsys, Patch
from .test_fidelity_rows import GIVEN, rows_of

UNIFORM = "uniform integer in [int(0.8*L), L]"
LOOP = {"isl": 256, "osl": 16, "concurrency": 2, "num_prompts": 8, "distribution": UNIFORM}
CLOSED = GIVEN | {"workload": LOOP}
FITTED = CLOSED | {"id": "fitted", "engine": "trtllm"}
COPY = {
    "id": "copy",
    "grade": "A",
    "kind": "host-device copy",
    "gpu": "H100",
    "metrics": {"single_dir_GBps": 50, "h2d_sm_GBps": 35},
}
GEMM = {
    "id": "gemm",
    "grade": "A",
    "kind": "kernel: bf16 GEMM",
    "gpu": "H100",
    "quote": "m 64 n 4096 k 4096 latency",
    "metrics": {"latency_ms": 0.02},
}
ROUNDS = {
    "id": "rounds",
    "grade": "B",
    "kind": "prefix-cache hit rate per round",
    "engine": "sglang",
    "workload": {"script": "4 clients; prompt of round r = 512 + 576 r"},
    "limits": {"max_total_tokens": 5_000},
    "metrics": {"hit_rate_by_round": [0, 0.470588, 0.653846]},
}
SAMPLED = CLOSED | {"id": "sampled", "note": "temperature 0.8 and top_p 0.95"}


def data_of(folder: Path, *rows: dict[str, object]) -> str:
    rows_of(folder, *rows)
    return str(folder)


def document(folder: Path, *command: str, code: int = 0) -> dict[str, Any]:
    out = folder / "out.json"
    assert main(["fidelity", "--jobs", "1", *command, "--json", str(out)]) == code
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def figures(row: Row, times: str = "pure-roofline") -> dict[str, Compared]:
    return {one.name: one for one in predict(Task(row, times)).figures}


def test_both_halves_are_judged_apart(tmp_path: Path) -> None:
    rows = [CLOSED, FITTED, COPY, GEMM, ROUNDS, SAMPLED]
    found = document(tmp_path, "--data", data_of(tmp_path, *rows))
    assert (found["fit"]["count"], found["judge"]["count"]) == (2, 3)
    assert set(found["judge"]["medians"]) == {"closed loop", "copies", "kernels"}
    assert set(found["fit"]["medians"]["closed loop"]) == {"ttft", "tpot"}
    assert found["left_out"] == {"sampling": 1}
    assert found["not_judged"] == {"sm-copy": 1, "overflow": 1}
    errors = {one["id"]: one for one in found["rows"]}
    (ttft, _) = errors["one"]["figures"]
    assert ttft["error"] == pytest.approx(ttft["predicted"] / 0.05 - 1)
    assert found["judge"]["medians"]["closed loop"]["ttft"] == pytest.approx(abs(ttft["error"]))
    hits = [one["error"] for one in errors["rounds"]["figures"] if not one["rule"]]
    assert max(map(abs, hits)) < 1e-6


def test_kernels_are_predicted_with_the_constants_of_the_table_and_of_no_model(
    tmp_path: Path,
) -> None:
    (row,) = rows_of(tmp_path, GEMM)
    found = []
    for where in ((), ("h100",), ("h100", "llama-3.1-8b")):
        slow = Factor("product.*.memory", where, 0.5, None, 1, ())
        (figure,) = predict(Task(row, "roofline", (slow,) if where else ())).figures
        found.append(figure.predicted)
    default, slower, of_a_model = found
    assert slower > 1.2 * default
    assert of_a_model == default


def test_time_models_stand_side_by_side_and_grade_c_apart(tmp_path: Path, capsys: Capsys) -> None:
    data = data_of(tmp_path, CLOSED, FITTED, GEMM, CLOSED | {"id": "c", "grade": "C"})
    found = document(tmp_path, "--data", data, "--times", "roofline,pure-roofline")
    assert {one["grade"] for one in found["rows"]} == {"A"}
    assert set(found["beside"]["judge"]["tpot"]) == {"roofline", "pure-roofline"}
    assert "kernel" not in found["beside"]["judge"]
    capsys.readouterr()
    assert main(["fidelity", "--data", data, "--jobs", "1", "--grade", "C", "--full"]) == 0
    said = capsys.readouterr().out
    assert "The half to fit: no figure" in said
    assert "The half to judge: no figure" in said


def test_a_second_run_does_only_what_is_missing(tmp_path: Path, capsys: Capsys) -> None:
    data, kept = data_of(tmp_path, CLOSED, COPY), tmp_path / "kept.jsonl"
    first = document(tmp_path, "--data", data, "--keep", str(kept))
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text(lines[0] + lines[1][:40])
    capsys.readouterr()
    again = document(tmp_path, "--data", data, "--keep", str(kept))
    said = capsys.readouterr().err
    assert "the last line was cut off; its row runs again" in said
    assert "1 of 2 rows are done already" in said
    assert first["rows"] == again["rows"]
    kept.write_text('{"other": 1}\n')
    assert main(["fidelity", "--data", data, "--keep", str(kept)]) == 2
    assert "kept.jsonl:1: expected a row that was predicted before" in capsys.readouterr().err


def test_the_page_and_the_picture_have_every_row(tmp_path: Path) -> None:
    data = data_of(tmp_path, CLOSED, FITTED, COPY, GEMM, ROUNDS)
    page, drawn = tmp_path / "page.html", tmp_path / "picture.svg"
    document(tmp_path, "--data", data, "--html", str(page), "-o", str(drawn))
    for text in (page.read_text(), drawn.read_text()):
        assert all(name in text for name in ("one", "fitted", "copy", "gemm"))
    assert drawn.read_text().count("<polygon") == 8  # two bands for each quantity but hit rates


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--data", "{}/none"], "expected published measurements, found: No such file"),
        (["--only", "h300"], "--only: expected an id, kind, GPU, model or engine of the rows"),
        (["--grade", "D"], "--grade: expected some of A, B, C, found 'D'"),
        (["--times", "magic"], "expected one of"),
        (["--output", "{}/picture.png"], "expected a name that ends in .svg"),
        (
            ["--json", "{}/measurements.jsonl"],
            "expected another file than the data, which it would replace",
        ),
        (["--json", "-", "--html", "-"], "expected one document on standard output, found two"),
        (["--sample", "0"], "--sample"),
    ],
)
def test_bad_options_are_one_line(
    tmp_path: Path, given: list[str], said: str, capsys: Capsys
) -> None:
    data = data_of(tmp_path, CLOSED)
    words = [word.format(tmp_path) for word in given]
    assert main(["fidelity", "--data", data, *words]) == 2
    assert said in capsys.readouterr().err


def test_a_bad_row_ends_the_command_before_anything_runs(tmp_path: Path, capsys: Capsys) -> None:
    with pytest.raises(Exception, match="row bad"):
        data_of(tmp_path, CLOSED, CLOSED | {"id": "bad", "tp": 16})
    assert main(["fidelity", "--data", str(tmp_path)]) == 2
    assert "measurements.jsonl:2, row bad: tp: expected at most" in capsys.readouterr().err


DRAFTED = {
    "hicache_model": "qwen3.5-397b-a17b",
    "engine": "sglang",
    "gpu": "B200",
    "weights": "fp8",
    "date": "2026-03-20",
    "tp": 8,
    "gpu_count": 8,
}
OF_MARCH = DRAFTED | {"hicache_model": "deepseek-v3", "date": "2026-03-25"}
SCRIPT = {"isl": 1024, "osl": 16, "num_prompts": 256, "distribution": "InferenceX: uniform 0.8"}
GPT_OSS = {"hicache_model": "gpt-oss-120b", "weights": "fp4", "limits": {"max_num_seqs": 1024}}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"hicache_hardware": "b200"}, "contradiction"),
        ({"gpu_count": 8}, "contradiction"),
        ({"note": "samples with top_p 0.95"}, "sampling"),
        ({"workload": LOOP | {"concurrency": 65}}, "limits"),
        (DRAFTED, "speculative"),
        (OF_MARCH, "speculative"),
        (GPT_OSS | {"workload": SCRIPT | {"concurrency": 512}}, "limits"),
        ({"workload": {"concurrency": 2}}, "incomplete"),
        ({"gpu": None}, "incomplete"),
        ({"engine": "one of three"}, "incomplete"),
        ({"hicache_model": None, "model": "Unknown-1B"}, "no-model"),
        ({"gpu": "X9000"}, "no-hardware"),
        ({"gpu": "A100", "hicache_model": "llama-3.1-70b", "tp": 1, "gpu_count": 1}, "no-place"),
        ({"kind": "host-device copy", "metrics": {"rdma_GBps": 194}}, "other-link"),
        (
            {
                "kind": "prefix-cache hit rate over a public trace",
                "workload": {"trace": "nobody_trace.jsonl"},
            },
            "no-trace",
        ),
    ],
)
def test_rows_are_left_out_by_rules(tmp_path: Path, change: dict[str, object], rule: str) -> None:
    (row,) = rows_of(tmp_path, CLOSED | change)
    found = predict(Task(row, "pure-roofline"))
    assert (found.left_out, found.figures) == (rule, ())
    assert rule in RULES


@pytest.mark.parametrize(
    "change",
    [
        # of these, the configuration of 8 ranks alone has speculative decoding
        OF_MARCH | {"tp": 4, "gpu_count": 4},
        # the script says the limit
        OF_MARCH | {"weights": "fp4", "workload": SCRIPT | {"concurrency": 128}},
        # the script sent 512 at once, and not so many
        GPT_OSS | {"workload": SCRIPT | {"concurrency": 256}},
        {"workload": LOOP | {"concurrency": 64}},
        {"workload": LOOP | {"concurrency": 65}, "limits": {"max_num_seqs": 128}},
        DRAFTED | {"date": "2026-03-24"},
        DRAFTED | {"weights": "bf16"},
    ],
)
def test_rows_beside_a_rule_are_predicted(tmp_path: Path, change: dict[str, object]) -> None:
    (row,) = rows_of(tmp_path, CLOSED | change)
    assert row_rule(row) == ""


def test_first_prompts_of_more_than_a_pass_wait_for_kernels_and_are_not_judged(
    tmp_path: Path,
) -> None:
    """32 of 1,024 tokens fill more than the 16,384 of the script's passes, and 8 do not."""
    run = DRAFTED | {"hicache_model": "deepseek-v3", "weights": "fp4", "date": "2025-11-10"}
    load = {"isl": 1024, "osl": 16, "num_prompts": 64, "distribution": "InferenceX: uniform 0.8"}
    rules = {}
    for count in (8, 32):
        (row,) = rows_of(tmp_path, CLOSED | run | {"workload": load | {"concurrency": count}})
        rules[count] = {one.quantity: figure_rule(row, one) for one in figures_of(row)}
    assert rules == {8: {"ttft": "", "tpot": ""}, 32: {"ttft": "start-up", "tpot": ""}}


def test_a_fit_needs_its_extra_and_takes_both_halves(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    data, out = data_of(tmp_path, CLOSED, FITTED), tmp_path / "fitted.json"
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "scipy.optimize", None)
        patched.delitem(sys.modules, "traces.fidelity.fitting.fit", raising=False)
        patched.delitem(sys.modules, "traces.fidelity.fitting.solving", raising=False)
        assert main(["fidelity", "--data", data, "--fit", str(out)]) == 2
    assert "--fit: expected scipy to be installed" in capsys.readouterr().err
    assert not out.exists()
    pytest.importorskip("scipy", exc_type=ImportError)
    assert main(["fidelity", "--data", data, "--fit", str(out)]) == 0
    groups = json.loads(out.read_text())["groups"]
    assert {half_of(name) for name in groups} == {"fit", "judge"}


def test_figures_that_are_not_judged(tmp_path: Path) -> None:
    eight = {"engine": "trtllm", "engine_version": "1.0.0rc3"}
    old = {"engine_version": "0.7.3", "workload": LOOP | {"isl": 20_000}}
    more = {"metrics": {"mean_ttft_ms": 9, "p99_ttft_ms": 10, "median_itl_ms": 8}}
    rows = rows_of(
        tmp_path,
        *(CLOSED | each | {"id": str(place)} for place, each in enumerate((eight, old, more))),
    )
    rules = [{name: one.rule for name, one in figures(row).items()} for row in rows]
    assert rules == [
        {"mean_ttft_ms": "rc3-ttft", "mean_tpot_ms": ""},
        {"mean_ttft_ms": "", "mean_tpot_ms": "old-attention"},
        {"mean_ttft_ms": "", "p99_ttft_ms": "not-first", "median_itl_ms": ""},
    ]
    assert all(rule in FIGURE_RULES for each in rules for rule in each.values() if rule)


def test_decode_over_context_and_batches_are_replayed(tmp_path: Path) -> None:
    """A published line is met at its points; a batch's time is divided by its output tokens."""
    line, batch = rows_of(
        tmp_path,
        GIVEN
        | {
            "id": "line",
            "kind": "decode-bs1 over context",
            "workload": {"isl": "swept", "osl": 128},
            "metrics": {"itl_ms_intercept": 6.4, "itl_ms_at_1k": 6.5, "itl_ms_at_32k": 7.9},
        },
        GIVEN
        | {
            "id": "batch",
            "kind": "decode-bs8 (fixed batch)",
            "workload": {"isl": 32, "osl": 128, "batch": 8},
            "metrics": {"mean_e2e_ms": 800.0, "implied_itl_ms": 6.25},
        },
    )
    found = figures(line)
    assert set(found) == {"itl_ms_at_1k", "itl_ms_at_32k"}
    assert found["itl_ms_at_32k"].predicted > found["itl_ms_at_1k"].predicted
    assert {one.kind for one in found.values()} == {"decode"}
    found = figures(batch)
    per_token = found["mean_e2e_ms"].predicted / 128
    assert found["implied_itl_ms"].predicted == pytest.approx(per_token)


def test_hits_of_a_trace_are_of_whole_prefixes(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [[1, 2, 3], [1, 2, 4], [9], [1, 5, 3]]
    trace.write_text("".join(json.dumps({"hash_ids": ids}) + "\n" for ids in lines))
    assert hit_rate(trace, 0) == 3 / 10
    assert hit_rate(trace, 3) == 2 / 10


def test_rows_are_chosen_by_words_and_sampled_by_group(tmp_path: Path) -> None:
    many = [CLOSED | {"id": f"row{n}", "tp": 1 + n % 2} for n in range(30)]
    rows = rows_of(tmp_path, *many, FITTED, COPY)
    assert len(chosen(rows, ("A",), ("h100", "vllm"))) == 30
    assert [row.id for row in chosen(rows, ("A",), ("row1?",))] == [f"row1{n}" for n in range(10)]
    assert [row.id for row in chosen(rows, ("A",), ("trtllm",))] == ["fitted"]
    some = sampled(rows, 8)
    assert {"fitted", "copy"} <= {row.id for row in some}
    assert 6 <= len(some) <= 12


def test_a_summary_counts_absolute_errors() -> None:
    signed = (-0.30, -0.08, 0.02, 0.05, 0.20)
    found = summary([Compared("x", "tpot", "decode", "mean", 1.0, 1 + one) for one in signed])
    assert (found.figures, found.bias) == (5, pytest.approx(0.02))
    assert (found.median, found.within_10, found.within_25) == (pytest.approx(0.08), 0.6, 0.8)


@pytest.mark.one_in(8)
def test_every_published_row_can_be_read() -> None:
    """The measurements that others published, where a checkout has them."""
    folder = Path(__file__).resolve().parents[3] / "shared" / "published"
    if not folder.exists():
        pytest.skip("no published measurements in ../shared/published")
    rows = read(folder)
    assert len(rows) > 2000
    left = [row for row in rows if row.grade in "AB" and not row.metrics]
    assert not left


def test_ctrl_c_keeps_and_shows_what_is_done(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    data, kept = data_of(tmp_path, CLOSED, COPY), tmp_path / "kept.jsonl"
    done: list[str] = []

    def interrupted(task: Task) -> Outcome:
        if done:
            raise KeyboardInterrupt
        done.append(task.row.id)
        return predict(task)

    with monkeypatch.context() as patched:
        patched.setattr(table, "predict", interrupted)
        found = document(tmp_path, "--data", data, "--keep", str(kept), code=130)
    assert (found["complete"], [one["id"] for one in found["rows"]]) == (False, done)
    assert "interrupted: 1 of 2 rows are done; the same command does the rest" in (
        capsys.readouterr().err
    )
    assert len(document(tmp_path, "--data", data, "--keep", str(kept))["rows"]) == 2


def test_an_error_bar_is_made_of_other_rows_and_apart_near_saturation() -> None:
    """Of each half of the rows, by their ids, the bar is the error of the other half."""
    figure = Compared("mean_tpot_ms", "tpot", "closed loop", "mean", 1.0, 1.25)
    calm = Outcome(
        "", "roofline", "judge", "g", "A", "h100", "llama-3.1-8b", "vllm", "", "", ranks=1
    )
    names = {half: [name for n in range(40) if half_of(name := f"r{n}") == half] for half in HALVES}
    some = [
        replace(calm, id=name, figures=(figure,)) for each in names.values() for name in each[:4]
    ]
    assert coverage(some)["short queues"] == {"figures": 8, "within": 8}
    far = replace(figure, predicted=1.5)
    changed = [replace(one, figures=(far,)) if one.id in names["fit"][:4] else one for one in some]
    assert coverage(changed)["short queues"] == {"figures": 8, "within": 4}
    waiting = [replace(one, queueing=0.9) for one in changed]
    found = coverage(waiting)
    assert found["short queues"]["figures"] == 0
    assert found["requests mostly wait"] == {"figures": 8, "within": 4}


def test_tails_are_apart_and_count_what_no_other_rule_leaves_out() -> None:
    def figure(name: str, statistic: str, predicted: float, rule: str = NOT_FIRST) -> Compared:
        return Compared(name, name, "closed loop", statistic, 1.0, predicted, rule)

    figures = (
        figure("ttft", "mean", 1.5, ""),
        figure("ttft", "p99", 1.2),
        figure("tpot", "p99", 0.9),
        figure("tpot", "median", 3.0),
        figure("ttft", "p90", 9.0, "rc3-ttft"),
        figure("e2e", "p99", 5.0),
    )
    some = [
        Outcome(str(n), "roofline", half, "", grade, "h100", "", "", "", "", figures=figures)
        for n, (half, grade) in enumerate([("judge", "A"), ("fit", "A"), ("judge", "C")])
    ]
    found = {name: (one.figures, round(one.bias, 3)) for name, one in tails(some, "judge").items()}
    assert found == {"ttft p99": (1, 0.2), "tpot p99": (1, -0.1)}
