"""Published rows as replays: their requests, their server, and the passes that fits are made on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.times import base as times
from traces.fidelity import workloads as lengths
from traces.fidelity.figures import figures_of
from traces.fidelity.rows import Row
from traces.fidelity.running import predicted, record, replay
from traces.fidelity.setup import setup_of
from traces.fidelity.workloads import load_of

from .test_fidelity_rows import GIVEN, rows_of

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
