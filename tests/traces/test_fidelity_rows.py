"""Published measurements: what a row must have, names that are normalised, the split; rows as
replays: their requests, their server, and the passes that fits are made on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hicache.core.errors import CallerError
from sim.times import base as times
from traces.fidelity import names
from traces.fidelity import workloads as lengths
from traces.fidelity.choosing import group, half
from traces.fidelity.figures import figures_of
from traces.fidelity.rows import Row, read
from traces.fidelity.rules import row_rule
from traces.fidelity.running import predicted, record, replay
from traces.fidelity.setup import setup_of
from traces.fidelity.workloads import load_of

GIVEN: dict[str, object] = {
    "id": "one",
    "grade": "A",
    "kind": "serving-closed-loop",
    "engine": "vllm",
    "engine_version": "0.10.2",
    "gpu": "H100 SXM 80GB",
    "gpu_count": 2,
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "hicache_model": "llama-3.1-8b",
    "tp": 2,
    "pp": 1,
    "weights": "bf16 (page says fp16)",
    "workload": {"isl": 1024, "osl": 1024, "concurrency": 4},
    "metrics": {"mean_ttft_ms": 50.0, "mean_tpot_ms": 7.0},
}


def rows_of(folder: Path, *rows: object) -> list[Row]:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "measurements.jsonl").write_text("\n".join(lines) + "\n")
    return read(folder)


def test_a_row_is_read_and_its_names_are_normalised(tmp_path: Path) -> None:
    row, other = rows_of(tmp_path, GIVEN, GIVEN | {"id": "two", "unknown": [1], "weights": None})
    assert (row.hardware, row.model, row.engine, row.weights) == (
        "h100",
        "llama-3.1-8b",
        "vllm",
        "bf16",
    )
    assert (row.tp, row.ep, row.dp_attention, row.prefix_cache) == (2, 0, 0, None)
    assert (other.id, other.weights) == ("two", "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"grade": None}, "grade: expected one of A, B, C, found null"),
        ({"grade": "D"}, 'grade: expected one of A, B, C, found "D"'),
        ({"metrics": {}}, "metrics: expected at least one figure, found none"),
        ({"metrics": None}, "metrics: expected an object, found null"),
        ({"metrics": {"mean_tpot_ms": -1}}, "metrics.mean_tpot_ms: expected a number of at least"),
        ({"metrics": {"mean_tpot_ms": "7"}}, "metrics.mean_tpot_ms: expected a number of at least"),
        ({"metrics": {"rate": [1, True]}}, "metrics.rate: expected a number of at least 0"),
        ({"metrics": {"mean_tpot_ms": 10**400}}, "metrics.mean_tpot_ms: expected a number of at"),
        ({"metrics": {"ttft_ms": 9, "e2e_ms": 8}}, "metrics.ttft_ms: expected at most e2e_ms"),
        ({"workload": {"isl": 0}}, "workload.isl: expected an integer from 1 to 10000000, found 0"),
        ({"workload": {"concurrency": "x"}}, "workload.concurrency: expected an integer from 1 to"),
        ({"workload": {"num_prompts": 10**10}}, "workload.num_prompts: expected an integer from 1"),
        ({"workload": {"rate": [5, -4]}}, "workload.rate: expected a number above 0 and at most"),
        ({"workload": {"shared_prefix": 7}}, "workload.shared_prefix: expected an object, found 7"),
        (
            {"workload": {"shared_prefix": {"prefixes": 9}}},
            "workload.shared_prefix.users: expected an integer from 1 to 1000000, found nothing",
        ),
        (
            {"limits": {"max_num_seqs": -1}},
            "limits.max_num_seqs: expected an integer from 1 to 1000000000, found -1",
        ),
        (
            {"limits": {"kv_fraction": 7.5}},
            "limits.kv_fraction: expected a number above 0 and at most 1, found 7.5",
        ),
        ({"tp": 0}, "tp: expected an integer of at least 1, found 0"),
        ({"tp": 2.0}, "tp: expected an integer of at least 1, found 2.0"),
        ({"tp": 4}, "tp: expected at most the 2 GPUs of gpu_count, found 4 ranks"),
        ({"dp_attention": 8}, "dp_attention: expected at most the 2 GPUs of gpu_count, found 8"),
        ({"gpu": 7}, "gpu: expected a text, found 7"),
        ({"workload": []}, "workload: expected an object, found []"),
        ({"prefix_cache": "no"}, 'prefix_cache: expected true or false, found "no"'),
        ({"missing": "all"}, 'missing: expected a list, found "all"'),
        (
            {"metrics": {"median_ttft_ms": 9, "p99_ttft_ms": 8}},
            "metrics.median_ttft_ms: expected at most p99_ttft_ms, found 9",
        ),
    ],
)
def test_a_bad_row_is_named_with_its_file_and_line(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    with pytest.raises(CallerError) as error:
        rows_of(tmp_path, GIVEN | {"id": "first"}, GIVEN | {"id": "bad"} | change)
    text = str(error.value)
    assert f"measurements.jsonl:2, row bad: {said}" in text
    assert "\n" not in text
    assert text.endswith("; mend the row")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", "expected one JSON object, found a list of 1"),
        ("{", "expected one JSON object, found: "),
        ('{"id": "a", "id": "b"}', "found: the key 'id' twice"),
        ('{"id": "a", "metrics": {"x": NaN}}', "found: the number NaN"),
        ("[" * 100_000, "expected one JSON object, found: "),
        (json.dumps({"grade": "A"}), "id: expected a text, found nothing"),
        (json.dumps(GIVEN | {"note": "x" * 2_000_000}), "expected a row of at most 1048576 bytes"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(CallerError) as error:
        rows_of(tmp_path, line)
    assert "measurements.jsonl:1: " in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("kind", "workload", "metrics"),
    [
        ("throughput-saturation", {"client_concurrency": 4, "num_prompts": 8}, {"output_tok_s": 1}),
        ("serving-open-loop", {"trace": "sharegpt_x", "num_prompts": 8, "rate": 1}, {"ttft_ms": 1}),
        ("serving-open-loop", {"trace": "about 10 a second", "num_prompts": 8}, {"ttft_ms": 1}),
        (
            "prefix-cache hit rate per round",
            {"script": "99999999 clients, prompt of round r = 5 + 6 r"},
            {"hit_rate_by_round": [0, 0.5]},
        ),
        (
            "prefix-cache hit rate per round",
            {"clients": 2, "rounds": 2},
            {"hit_rate_by_round": []},
        ),
        (
            "prefix-cache, serving-open-loop",
            {"profile": "0 x 5, question 4, output 9, system 1, 5 req/s"},
            {"ttft_ms": 1},
        ),
    ],
)
def test_requests_that_a_row_does_not_describe_leave_it_out(
    tmp_path: Path, kind: str, workload: dict[str, object], metrics: dict[str, object]
) -> None:
    (row,) = rows_of(tmp_path, GIVEN | {"kind": kind, "workload": workload, "metrics": metrics})
    assert row_rule(row) == "incomplete"


def test_a_version_of_many_digits_has_no_order(tmp_path: Path) -> None:
    assert names.version("9" * 5_000 + ".1") == (999_999_999, 1)


def test_an_id_is_there_once_and_a_file_has_rows(tmp_path: Path) -> None:
    with pytest.raises(
        CallerError, match=r"jsonl:2, row one: id: expected one row, found also .*:1"
    ):
        rows_of(tmp_path, GIVEN, GIVEN)
    with pytest.raises(CallerError, match="expected published measurements, found no row"):
        rows_of(tmp_path, "")
    with pytest.raises(CallerError, match="found: No such file or directory; name their folder"):
        read(tmp_path / "none")


def test_gpus_engines_and_versions_have_one_name_each() -> None:
    gpus = ["H100 SXM 80GB", "H100 80GB HBM3", "H100-80GB-HBM3", "H100", "H100 cluster"]
    assert {names.gpu(text) for text in gpus} == {"h100"}
    texts = ("A100 40GB", "A100-SXM4-80GB", "H20", "GH200", "RTX PRO 6000", "")
    found = [names.gpu(text) for text in texts]
    assert found == ["a100_40gb", "a100", "h20", "gh200", "rtx_pro_6000", "none"]
    texts = ("vllm PD, Mooncake", "NIM (TensorRT-LLM)", "sglang PD", "trace replay (no engine)")
    assert [names.engine(text) for text in texts] == ["vllm", "trtllm", "sglang", "none"]
    texts = ("1.1.0rc2.post2", "NIM 1.8.0", "nightly-dev-20260216", "")
    assert [names.version(text) for text in texts] == [(1, 1, 0), (1, 8, 0), (), ()]


def test_rows_are_split_by_group(tmp_path: Path) -> None:
    """The halves of two groups, so that no change of the hash goes unseen."""
    one, same, other = rows_of(
        tmp_path,
        GIVEN,
        GIVEN | {"id": "same", "gpu": "H100", "engine_version": "0.20"},
        GIVEN | {"id": "other", "engine": "trtllm"},
    )
    assert group(one) == group(same) == "h100|llama-3.1-8b|vllm"
    assert group(other) == "h100|llama-3.1-8b|trtllm"
    assert [half(row) for row in (one, same, other)] == ["judge", "judge", "fit"]


UNIFORM = "uniform integer in [int(0.8*L), L], input and output alike"


def row_of(folder: Path, **change: object) -> Row:
    return rows_of(folder, GIVEN | change)[0]


def test_lengths_are_drawn_as_the_benchmarks_drew_them() -> None:
    """SGLang's totals are those that its cookbook prints."""
    drawn = lengths.inferencex(1024, 8192, 500)
    assert (drawn.inputs.min(), drawn.inputs.max()) == (819, 1024)
    assert (drawn.outputs.min() >= 6553, drawn.outputs.max() <= 8192) == (True, True)
    totals = [[int(part.sum()) for part in lengths.cookbook(1000, 1000, n)] for n in (10, 80, 500)]
    assert totals == [[6101, 4220], [39668, 40805], [249831, 252662]]
    scaled = lengths.with_totals(lengths.cookbook(600, 400, 100), 33178, 21251)
    assert abs(int(scaled.inputs.sum()) - 33178) < 50


def test_a_closed_loop_is_replayed_and_its_passes_give_its_figures(tmp_path: Path) -> None:
    """The sums over recorded passes are the means of the replay."""
    work = {"isl": 512, "osl": 64, "concurrency": 4, "distribution": UNIFORM, "num_prompts": 40}
    row = row_of(tmp_path, workload=work)
    load = load_of(row)
    assert load is not None
    assert (len(load.jobs), load.concurrency) == (40, 4)
    setup = setup_of(row, load.concurrency)
    served = setup.model, setup.hardware, setup.parallelism, setup.engine
    found, passes = record(setup, load, times.make("pure-roofline", *served))
    ttft, tpot = (predicted(found, figure) for figure in figures_of(row))
    took = passes.took_ns / 1e9
    assert passes.before_s + float(passes.ttft @ took) == pytest.approx(ttft, rel=1e-6)
    assert float(passes.tpot @ took) == pytest.approx(tpot, rel=1e-6)
    assert int(passes.tokens.sum()) == sum(job.input_length for job in load.jobs)
    assert int(passes.decoding.sum()) == sum(job.output_length - 1 for job in load.jobs)
    smooth = replay(setup, load, "pure-roofline")
    assert predicted(smooth, figures_of(row)[1]) == pytest.approx(tpot, rel=1e-4)


def test_requests_of_one_token_count_for_no_time_between_tokens(tmp_path: Path) -> None:
    work = {"isl": 64, "osl": 16, "concurrency": 4, "distribution": UNIFORM, "num_prompts": 12}
    row = row_of(tmp_path, workload=work)
    load = load_of(row)
    assert load is not None
    jobs = [replace(job, output_length=1) if job.index % 3 else job for job in load.jobs]
    load, setup = replace(load, jobs=tuple(jobs)), setup_of(row, load.concurrency)
    served = setup.model, setup.hardware, setup.parallelism, setup.engine
    found, passes = record(setup, load, times.make("pure-roofline", *served))
    tpot = predicted(found, figures_of(row)[1])
    assert float(passes.tpot @ passes.took_ns) / 1e9 == pytest.approx(tpot, rel=1e-6)


def test_rows_without_flags_have_those_of_their_script(tmp_path: Path) -> None:
    """SGLang on B200 looks for requests after 30 passes; TensorRT-LLM holds short prompts back."""
    how = {"distribution": f"{UNIFORM} (InferenceX)", "isl": 1024, "osl": 1024, "concurrency": 32}
    change: dict[str, object] = {"gpu": "B200", "workload": how, "weights": "fp8"}
    deepseek = {"engine": "sglang", "hicache_model": "deepseek-v3", "tp": 8, "gpu_count": 8}
    setup = setup_of(row_of(tmp_path, **change, **deepseek), 32)
    assert (setup.token_budget, setup.max_running, setup.flags.poll_passes) == (32_768, 128, 30)
    assert (setup.engine.all_reduce, setup.model.kv_dtype) == ("fused", "fp8")
    llama = {"engine": "trtllm", "hicache_model": "llama-3.1-70b", "tp": 2, "gpu_count": 2}
    row = row_of(tmp_path, **change, **llama, limits={"max_num_tokens": 16_384})
    setup = setup_of(row, 32)
    assert (setup.token_budget, setup.flags.wait_passes) == (16_384, 20)
    assert setup_of(replace(row, workload=how | {"osl": 8192}), 32).flags.wait_passes == 0


def test_room_for_rows_is_what_two_engines_printed(tmp_path: Path) -> None:
    """vLLM printed 30,251 blocks of 16 tokens for 70B on four H100."""
    row = row_of(tmp_path, hicache_model="llama-3.1-70b", tp=4, gpu_count=4)
    setup = setup_of(row, 4)
    assert setup.tokens_in_pool(1024) / 16 == pytest.approx(30_251, rel=0.01)
    row = replace(row, limits={"kv_blocks_of_16": 100, "max_num_seqs": "CONC"})
    setup = setup_of(row, 4)
    assert (setup.tokens_in_pool(1024), setup.max_running) == (1600, 4)


def test_prompts_that_grow_find_what_was_cached(tmp_path: Path) -> None:
    """Rounds of SGLang's benchmark: while everything fits, a round finds the prompt before it."""
    script = "bench_multiturn.py, 4 clients; prompt of round r = 512 + 576 r"
    row = row_of(
        tmp_path,
        kind="prefix-cache hit rate per round",
        workload={"script": script},
        metrics={"hit_rate_by_round": [0, 0.47, 0.65]},
    )
    load = load_of(row)
    assert load is not None
    hits = replay(setup_of(row, 0), load, "pure-roofline").hits
    assert np.allclose(hits, [0, 512 / 1088, 1088 / 1664])


def test_a_prompt_is_loaded_back_from_host(tmp_path: Path) -> None:
    row = row_of(
        tmp_path,
        kind="host offload / load-back",
        workload={"isl": 8192, "num_prompts": 2, "rate": 4.0},
        metrics={"cold_mean_ttft_ms": 500, "warm_mean_ttft_ms": 50},
    )
    load = load_of(row)
    assert load is not None
    found = replay(setup_of(row, 0), load, "pure-roofline")
    assert [one.host_tokens > 8000 for one in found.result.requests] == [False, False, True, True]
    cold, warm = (predicted(found, figure) for figure in figures_of(row))
    assert cold is not None
    assert warm is not None
    assert warm < cold / 2
