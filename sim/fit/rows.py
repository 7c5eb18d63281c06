"""Published measurements, one JSON object a line, as runs that can be replayed: the requests that
each served, drawn as the benchmark of its source drew them, and its server.

What a row does not say comes from the version of its date, from the script that ran it
(github.com/SemiAnalysisAI/InferenceX, benchmarks/single_node, and 70b_*_trt_slurm.sh for Llama 70B
with TensorRT-LLM), from the engine's profile or from a constant here. No rule looks at an error.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import hicache.models as models
import sim.engine_profiles as engine_profiles
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from sim import hardware
from sim.engine_profiles import EngineProfile
from sim.hardware import HardwareProfile
from sim.times.base import Parallelism
from sim.workload import Job

TTFT, TPOT, THROUGHPUT = "ttft", "tpot", "throughput"
Row = Mapping[str, Any]
_CLOSED, _BURST = "serving-closed-loop", "throughput-saturation"
_WAVES = 10  # prompts of an InferenceX run for each request in flight
# The versions of public images, with the month from which runs use them.
_RELEASES = {
    "vllm": (("2025-09", "0.10.2"), ("2026-02", "0.15.1")),
    "sglang": (("2025-08", "0.5.1"), ("2025-11", "0.5.6"), ("2026-02", "0.5.9")),
    "trtllm": (("2025-10", "1.1.0rc2.post2"), ("2025-12", "1.2.0rc2"), ("2026-02", "1.2.0rc6")),
}
_BLOCK = 64
_LEAST_SINCE = "2026-01-21"  # of the script of DeepSeek with TensorRT-LLM (64af5a771)
# Data sheets count 2**30 bytes as a GB of device memory, of which drivers report 99 % (torch: 79.1
# GiB of an H100, 178.4 of a B200, 23.6 of an RTX 4090).
_REPORTED = 1.063
# Activations, CUDA graphs and buffers; estimates but that of vLLM, whose printed pools come out.
_BUFFERS = {"vllm": 1_700_000_000, "sglang": 0, "trtllm": 2_000_000_000}
_LARGE_MEMORY = 160_000_000_000
_SGLANG_CHUNK_LARGE = 16_384
# NVIDIA's runs of Llama 8B on H200 with vLLM 0.12.0: with the requests in flight that they name,
# their times need up to the whole peak of the data sheet for matrix products alone, where all other
# rows need at most 47 %.
_TOO_FAST = ("h200", "llama-3.1-8b", "vllm", "0.12.0")
# Runs of InferenceX with speculative decoding: model, engine, accelerator, weights, date, and ranks
# of a product (0 for any). See perf-changelog.yaml and .github/configs/nvidia-master.yaml at
# bf3456727 (first three), e28c038f8, 5d517074c, 0aae52d4c, 35d4bb367 and 12ba0ae07; at the fourth
# and the last, for the ranks and requests at once of the rows that are published.
_SPECULATIVE = {
    ("deepseek-v3", "trtllm", "b200", "fp4", "2026-01-14", 0),
    ("deepseek-v3", "trtllm", "b200", "fp8", "2026-01-14", 0),
    ("deepseek-v3", "trtllm", "h200", "fp8", "2026-01-14", 0),
    ("deepseek-v3", "trtllm", "h200", "fp8", "2026-01-28", 0),
    ("deepseek-v3", "trtllm", "b200", "fp8", "2026-02-05", 0),
    ("deepseek-v3", "trtllm", "b200", "fp4", "2026-02-06", 0),
    ("qwen3.5-397b-a17b", "sglang", "b200", "fp8", "2026-03-20", 0),
    ("deepseek-v3", "sglang", "b200", "fp8", "2026-03-25", 8),
}
_FLAGS = ("token_budget", "max_running", "memory", "kv_dtype", "all_reduce")
_RANKS = ("tp", "pp", "ep", "dp_attention")
_FEW = 64  # requests that every server admits at once


@dataclass(frozen=True)
class Run:
    """A row that can be replayed. group: accelerator, model and engine. series: the server and the
    benchmark, whatever its load and lengths. concurrency: requests in flight. pool_tokens: of mean
    requests that the pools of all attention groups hold. figures: means in seconds, and
    output tokens a second."""

    id: str
    group: str
    series: str
    jobs: tuple[Job, ...]
    concurrency: int
    hardware: HardwareProfile
    model: ModelDescription
    parallelism: Parallelism
    engine: EngineProfile
    token_budget: int
    max_running: int
    pool_tokens: int
    figures: dict[str, float]


def read(paths: Iterable[Path]) -> list[Run]:
    """The runs of grades A and B with times of whole passes that can be replayed (docs/times.md
    says which), by id. paths: files, or folders with measurements.jsonl."""
    runs: dict[str, Run | None] = {}
    for path in paths:
        file = path / "measurements.jsonl" if path.is_dir() else path
        for row in map(json.loads, file.read_text().splitlines()):
            if row["grade"] in ("A", "B") and row["kind"].startswith((_CLOSED, _BURST)):
                runs[row["id"]] = _run(_filled(row))
    return [run for _, run in sorted(runs.items()) if run]


def _filled(row: Row) -> Row:
    """With "", 0, 1 or {} for what is not said."""
    empty: dict[str, Any] = dict.fromkeys(("engine_version", "gpu", "note", "date"), "")
    empty |= dict.fromkeys(("pp", "ep", "dp_attention"), 1) | {"gpu_count": 0, "tp": 0}
    empty |= {name: {} for name in ("workload", "limits", "metrics")}
    filled = dict(row) | {name: row.get(name) or value for name, value in empty.items()}
    for name in ("weights", "kv_dtype"):  # such as "bf16 (field empty)"
        filled[name] = (row.get(name) or "").partition(" ")[0].replace("fp16", "bf16")
    filled |= {name: row.get(f"hicache_{name}") or "" for name in ("hardware", "model")}
    filled["lengths"] = [filled["workload"].get(name) or 0 for name in ("isl", "osl")]
    return filled


def _run(row: Row) -> Run | None:
    run = tuple(row[name] for name in ("model", "engine", "hardware", "weights", "date"))
    model, engine, machine, *_ = run
    ranks, value = row["tp"] * row["pp"] * row["dp_attention"], row["workload"]
    replicas = value.get("concurrency_per_replica") or row["kind"].startswith(_BURST)
    if (
        not row["gpu"].lower().startswith(machine.partition("_")[0])
        or (row["gpu_count"] > ranks >= row["ep"] and not replicas)
        or (machine, model, engine, row["engine_version"]) == _TOO_FAST
        or not _SPECULATIVE.isdisjoint({(*run, 0), (*run, row["tp"])})
        or "top_p" in row["note"]
        or engine not in _RELEASES
        or not row["tp"]
        or model not in models.names()
        or machine.replace("_", "-") not in hardware.names()
        or (load := _load(row)) is None
    ):
        return None
    jobs, concurrency = load
    flags, admitted = _flags(row, concurrency), _admitted(row, concurrency)
    if concurrency > _FEW and not admitted and not flags:
        return None
    mean = sum(job.input_length + job.output_length for job in jobs) // len(jobs)
    server = _server(row, concurrency, mean, flags, admitted)
    profile = (
        server["engine"].label,
        row["weights"],
        *[row[name] for name in _RANKS],
        row.get("source", ""),
    )
    group = f"{machine}|{model}|{engine}"
    return Run(row["id"], group, f"{group}|{profile}", *load, **server, figures=_figures(row))


def _figures(row: Row) -> dict[str, float]:
    """The figures of a row that are sums over its passes: means of times, and rates."""
    metrics, gpus = row["metrics"], max(1, row["gpu_count"])
    times = {TTFT: metrics.get("mean_ttft_ms"), TPOT: metrics.get("mean_tpot_ms")}
    figures = {what: value / 1000 for what, value in times.items() if value is not None}
    rate = metrics.get("output_tok_s") or metrics.get("output_tok_s_per_gpu", 0) * gpus
    return figures | ({THROUGHPUT: rate} if rate else {})


def _load(row: Row) -> tuple[tuple[Job, ...], int] | None:
    """The requests of a closed loop, or of trtllm-bench (all at once), and how many are in flight.
    None where the row does not say enough."""
    (isl, osl), value = row["lengths"], row["workload"]
    closed = row["kind"].startswith(_CLOSED)
    count, concurrency = value.get("num_prompts") or 0, value.get("concurrency") or 0
    if not isl or not osl or not (concurrency if closed else count):
        return None
    # some rows divide it by the ranks of one replica; what counts is how many replicas there are
    replicas = max(1, row["gpu_count"] // (row["tp"] * row["dp_attention"] * row["pp"]))
    in_flight = max(1, concurrency // replicas) if closed else count
    count = count or _WAVES * in_flight
    inputs, outputs = [isl] * count, [osl] * count
    if "uniform" in str(value.get("distribution")):
        # InferenceX, utils/bench_serving, sample_uniform: prompts before outputs
        random = np.random.RandomState(0)
        inputs, outputs = (
            random.randint(max(1, int(0.8 * item)), item + 1, size=count).tolist()
            for item in (isl, osl)
        )
    jobs = (Job(index, 0, inputs[index], outputs[index]) for index in range(count))
    return tuple(jobs), in_flight


def _flags(row: Row, concurrency: int) -> dict[str, Any]:
    """What the script that ran this row sets; nothing for a row of another source."""
    if "InferenceX" not in str(row["workload"].get("distribution")):
        return {}
    b200, fp8, limits = row["hardware"] == "b200", row["weights"] == "fp8", (32_768, 128, 0.82)
    match row["engine"], row["model"], b200:
        case "sglang", "deepseek-v3", True:
            few = (8192, 32, 0.95) if row["tp"] == 4 else limits
            values = (*(few if fp8 else (16_384, 256, 0.85)), "fp8", "fused")
        case "sglang", "qwen3.5-397b-a17b", True:
            values = (*limits, *(("fp8", "") if fp8 else ("", "fused")))
        case "trtllm", "gpt-oss-120b", _:
            values = (20_000, 512 if b200 else concurrency, 0.85, "fp8" if b200 else "bf16", "")
        case "trtllm", "deepseek-v3", _:
            budget = -(-(concurrency + row["lengths"][0] + _BLOCK) // _BLOCK) * _BLOCK
            budget = max(8192 if row["date"] >= _LEAST_SINCE else 0, budget)
            values = (budget, 0, 0.8 if b200 else 0.75, "fp8", "")
        case _:
            return {}
    return dict(zip(_FLAGS, values, strict=True))


def _server(row: Row, concurrency: int, length: int, flags: Row, admitted: int) -> dict[str, Any]:
    """The fields of a run that say what served it. length: of a mean request. Raises CallerError
    for weights that do not fit."""
    machine, groups, message = hardware.get(row["hardware"]), row["dp_attention"], flags.get
    parallelism = Parallelism(row["tp"] * groups, row["pp"], row["ep"], groups)
    model = models.get(row["model"])
    model = models.checkpoint(model, row["weights"]) if row["weights"] else model
    quantized = row["engine"] == "trtllm" and row["weights"] in ("fp8", "fp4", "nvfp4")
    rows = row["kv_dtype"] or row["limits"].get("kv_cache_dtype") or message("kv_dtype")
    if (rows or ("fp8" if quantized else "")) == "fp8":  # as in checkpoints of TensorRT-LLM
        model = models.cached_as(model, "fp8")
    engine = engine_profiles.get(_engine(row))
    engine = replace(engine, all_reduce=message("all_reduce") or engine.all_reduce)
    large = row["engine"] == "sglang" and machine.hbm_bytes >= _LARGE_MEMORY
    budget = _number(row, "max_num_batched_tokens", "max_num_tokens", "chunked_prefill_size")
    budget = budget or message("token_budget", 0)
    budget = budget or max(engine.token_budget, _SGLANG_CHUNK_LARGE if large else 0)
    if "not given" in str(row["workload"].get("distribution")) and row["engine"] != "sglang":
        budget = row["lengths"][0] + concurrency  # an assumption of this family
    part = _number(row, "gpu_memory_utilization", "mem_fraction_static", "kv_fraction")
    part = part or message("memory") or engine.memory_permille / 1000
    # TensorRT-LLM takes a part of what weights and buffers leave; others a part of all memory
    memory = machine.hbm_bytes * _REPORTED
    used = model.weight_bytes / parallelism.ranks + _BUFFERS[row["engine"]]
    left = int(part * (memory - used) if row["engine"] == "trtllm" else part * memory - used)
    if left <= 0:
        raise CallerError(f"{model.name} does not fit into {machine.name}; delete the row")
    # of a window as far as it reaches, of a state once for each request
    tp = parallelism.attention_tp
    total = sum(
        pool.page_bytes(model.page_size, tp)
        if pool.kind == "state"
        else min(length, pool.window or length) * pool.token_bytes(tp)
        for pool in model.pools
    )
    return {
        "hardware": machine,
        "model": model,
        "parallelism": parallelism,
        "engine": engine,
        "token_budget": max(_BLOCK, int(budget)),
        "max_running": admitted or message("max_running") or engine.max_running,
        "pool_tokens": int(left * parallelism.pp * length / total) * groups,
    }


def _engine(row: Row) -> str:
    """What names the engine profile, such as vllm@0.12.0."""
    text, engine = row["engine_version"], row["engine"]
    if match := re.search(r"\d+\.\d[\w.]*", text):
        return f"{engine}@{match[0]}"
    pattern = re.compile(r"(20\d\d)-?(\d\d)")
    date = pattern.search(text) or pattern.search(row["date"])
    if not date:
        return str(engine)
    releases = _RELEASES[engine]
    earlier = [item for since, item in releases if since <= f"{date[1]}-{date[2]}"]
    return f"{engine}@{earlier[-1] if earlier else releases[0][1]}"


def _number(row: Row, *names: str) -> float:
    """The first number in these limits; 0 for none."""
    texts = (re.search(r"\d[\d.]*", str(row["limits"].get(name))) for name in names)
    return next((float(text[0]) for text in texts if text), 0)


def _admitted(row: Row, concurrency: int) -> int:
    """Requests that the server admits at once, as the row says it; 0 for nothing."""
    if row["limits"].get("max_num_seqs") == "CONC":
        return max(1, concurrency)
    text = str(row["limits"].get("max_running_requests"))
    if match := re.search(r"(\d+) for 1k/1k, (\d+) else", text):
        return int(match[1] if row["lengths"] == [1024, 1024] else match[2])
    names = ("max_num_seqs", "max_batch_size", "max_batch", "max_running_requests")
    return int(_number(row, *names))
