"""Published measurements, one JSON object a line: the rows that constants are fitted to, the
requests that each served, drawn as the benchmark of its source drew them, and its server.

What a row does not say comes from the version of its date, from the script that ran it
(github.com/SemiAnalysisAI/InferenceX, benchmarks/single_node, and 70b_*_trt_slurm.sh for Llama 70B
with TensorRT-LLM), from the engine's profile or from a constant here. No rule looks at an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hicache.models as models
import sim.engine_profiles as engine_profiles
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from sim import fitted, hardware
from sim.engine_profiles import EngineProfile
from sim.fitted import Factor
from sim.hardware import HardwareProfile
from sim.times.base import Parallelism
from sim.workload import Job

TTFT, TPOT, THROUGHPUT = "ttft", "tpot", "throughput"
_KINDS = ("serving-closed-loop", "throughput-saturation")
# Of each quantity the first metric counts, in seconds and tokens a second.
_FIGURES = {
    TTFT: ("mean_ttft_ms",),
    TPOT: ("mean_tpot_ms", "mean_itl_ms"),
    THROUGHPUT: ("output_tok_s", "output_tok_s_per_gpu"),
}
_WAVES = 10  # prompts of an InferenceX run for each request in flight
# The versions of public images, with the month from which runs use them.
_RELEASES = {
    "vllm": (("2025-09", "0.10.2"), ("2026-02", "0.15.1")),
    "sglang": (("2025-08", "0.5.1"), ("2025-11", "0.5.6"), ("2026-02", "0.5.9")),
    "trtllm": (("2025-10", "1.1.0rc2.post2"), ("2025-12", "1.2.0rc2"), ("2026-02", "1.2.0rc6")),
}
_NIM = {"NIM 1.8.0": "0.20"}  # counts its own versions; the release of the same month


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. 0 and "" mean that nothing is said. gpu: as its source calls it. workload,
    limits, metrics: as the source has them."""

    id: str
    kind: str
    gpu: str
    hardware: str
    model: str
    engine: str
    engine_version: str
    gpu_count: int
    tp: int
    pp: int
    ep: int
    dp_attention: int
    weights: str
    kv_dtype: str
    workload: Mapping[str, Any]
    limits: Mapping[str, Any]
    metrics: Mapping[str, Any]
    note: str
    date: str

    @property
    def group(self) -> str:
        """Accelerator, model and engine, such as "h100|llama-3.1-8b|vllm"."""
        return f"{self.hardware}|{self.model}|{self.engine}"

    @property
    def lengths(self) -> tuple[int, int]:
        """Of a prompt and its output."""
        return self.workload.get("isl") or 0, self.workload.get("osl") or 0


class Figure(NamedTuple):
    """what: ttft, tpot, itl or output_tok_s. quantity: the same for tpot and itl. value: a mean in
    seconds, or a rate per second."""

    what: str
    quantity: str
    value: float


def read(paths: Iterable[Path]) -> list[Row]:
    """The rows of grades A and B with times of whole passes, by id. paths: files, or folders with
    measurements.jsonl. Raises ValueError for a row that is there twice."""
    rows: dict[str, Row] = {}
    for path in paths:
        file = path / "measurements.jsonl" if path.is_dir() else path
        for given in map(json.loads, file.read_text().splitlines()):
            if given["grade"] in ("A", "B") and given["kind"].startswith(_KINDS):
                if given["id"] in rows:
                    raise ValueError(f"{path}: {given['id']} is there twice; delete one")
                rows[given["id"]] = _row(given)
    return [rows[name] for name in sorted(rows)]


def _row(given: Mapping[str, Any]) -> Row:
    names = ("id", "kind", "gpu", "engine_version", "note", "date", "weights", "kv_dtype")
    fields: dict[str, Any] = {name: given.get(name) or "" for name in names}
    fields |= {name: given.get(name) or 0 for name in ("gpu_count", "tp")}
    fields |= {name: given.get(name) or 1 for name in ("pp", "ep", "dp_attention")}
    fields |= {name: given.get(name) or {} for name in ("workload", "limits", "metrics")}
    for name in ("weights", "kv_dtype"):  # such as "bf16 (field empty)"
        fields[name] = fields[name].partition(" ")[0].replace("fp16", "bf16")
    engine = "trtllm" if "TensorRT" in given["engine"] else given["engine"]
    machine, model = (given.get(f"hicache_{name}") or "" for name in ("hardware", "model"))
    return Row(hardware=machine, model=model, engine=engine, **fields)


def figures(row: Row) -> list[Figure]:
    """The figures of a row that are sums over its passes: means of times, and rates."""
    found = []
    for quantity, names in _FIGURES.items():
        for name in [name for name in names if name in row.metrics][:1]:
            unit = 1e-3 if "_ms" in name else max(1, row.gpu_count) if "_gpu" in name else 1
            what = re.sub("^mean_|_ms$|_per_gpu$", "", name)
            found.append(Figure(what, quantity, row.metrics[name] * unit))
    return found


# -- the requests of a row


@dataclass(frozen=True, slots=True)
class Load:
    """concurrency: requests in flight. pass_tokens: of one pass, where the source gives no limit
    and the family has an assumption; else 0."""

    jobs: tuple[Job, ...]
    concurrency: int
    pass_tokens: int = 0

    @property
    def mean_length(self) -> int:
        """Tokens of a mean request when it ends."""
        return sum(job.input_length + job.output_length for job in self.jobs) // len(self.jobs)

    @property
    def longest(self) -> int:
        return max(job.input_length + job.output_length for job in self.jobs)


def _load(row: Row) -> Load | None:
    """The requests of a closed loop, or of trtllm-bench (all at once). None where the row does not
    say enough."""
    (isl, osl), given = row.lengths, row.workload
    closed = row.kind.startswith(_KINDS[0])
    count, concurrency = given.get("num_prompts") or 0, given.get("concurrency") or 0
    if not isl or not osl or not (concurrency if closed else count):
        return None
    # some rows divide it by the ranks of one replica; what counts is how many replicas there are
    ranks = max(1, row.tp) * row.dp_attention * row.pp
    in_flight = max(1, concurrency // max(1, row.gpu_count // ranks)) if closed else count
    count, how = count or _WAVES * in_flight, str(given.get("distribution", ""))
    inputs, outputs = [isl] * count, [osl] * count
    if "uniform" in how:  # InferenceX, utils/bench_serving, sample_uniform: prompts before outputs
        random = np.random.RandomState(0)
        inputs, outputs = (
            random.randint(max(1, int(0.8 * one)), one + 1, size=count).tolist()
            for one in (isl, osl)
        )
    jobs = tuple(Job(index, 0, inputs[index], outputs[index]) for index in range(count))
    one_prompt = closed and "not given" in how and row.engine in ("vllm", "trtllm")
    return Load(jobs, in_flight, isl + in_flight if one_prompt else 0)


# -- its server

_BLOCK = 64
# Dates of changes to the scripts of DeepSeek with TensorRT-LLM (64af5a771, ec7bafaae).
_LEAST_SINCE, _DELAYED_SINCE = "2026-01-21", "2026-01-29"
# Data sheets count 2**30 bytes as a GB of device memory, of which drivers report 99 % (torch: 79.1
# GiB of an H100, 178.4 of a B200, 23.6 of an RTX 4090).
_REPORTED = 1.063
# Activations, CUDA graphs and buffers; estimates but that of vLLM, whose printed pools come out.
_BUFFERS = {"vllm": 1_700_000_000, "sglang": 0, "trtllm": 2_000_000_000}
_LARGE_MEMORY = 160_000_000_000
_SGLANG_CHUNK_LARGE = 16_384


@dataclass(frozen=True, slots=True)
class Flags:
    """Of the script behind a row. 0, "" and 0.0: it does not say it. all_reduce: see EngineProfile.
    poll_passes, wait_passes, wait_permille: see EngineOptions."""

    token_budget: int = 0
    max_running: int = 0
    memory: float = 0.0
    kv_dtype: str = ""
    all_reduce: str = ""
    poll_passes: int = 1
    wait_passes: int = 0
    wait_permille: int = 0


@dataclass(frozen=True, slots=True)
class Server:
    """pool_bytes: for cached rows, of one rank."""

    hardware: HardwareProfile
    model: ModelDescription
    parallelism: Parallelism
    engine: EngineProfile
    token_budget: int
    max_running: int
    pool_bytes: int
    flags: Flags

    def tokens_in_pool(self, length: int) -> int:
        """Tokens of requests of this length that the pools of all attention groups hold: a window
        as far as it reaches, a state once for each request."""
        tp = self.parallelism.attention_tp
        held = sum(
            pool.page_bytes(self.model.page_size, tp)
            if pool.kind == "state"
            else min(length, pool.window or length) * pool.token_bytes(tp)
            for pool in self.model.pools
        )
        groups = self.parallelism.attention_dp
        return int(self.pool_bytes * self.parallelism.pp * length / held) * groups


def _flags(row: Row, concurrency: int) -> Flags:
    """The flags of the script that ran this row; none for a row of another source."""
    if "InferenceX" not in str(row.workload.get("distribution")):
        return Flags()
    run, b200 = (row.engine, row.model), row.hardware == "b200"
    if row.engine == "sglang" and b200:
        fp8, found = row.weights == "fp8", Flags()
        few = row.model == "deepseek-v3" and fp8 and row.tp == 4
        if few:
            found = Flags(8192, 32, 0.95, "fp8", "fused")
        elif row.model == "deepseek-v3":
            limits = (32_768, 128, 0.82) if fp8 else (16_384, 256, 0.85)
            found = Flags(*limits, "fp8", "fused")
        elif row.model == "qwen3.5-397b-a17b":
            found = Flags(32_768, 128, 0.82, *(("fp8",) if fp8 else ("", "fused")))
        return replace(found, poll_passes=10 if few or concurrency < 16 else 30)
    if run == ("trtllm", "llama-3.1-70b") and row.lengths == (1024, 1024) and row.tp < 8:
        return Flags(wait_passes=20, wait_permille=900)
    if run == ("trtllm", "gpt-oss-120b"):
        return Flags(20_000, 512 if b200 else concurrency, 0.85, "fp8" if b200 else "bf16")
    return _deepseek(row, concurrency) if run == ("trtllm", "deepseek-v3") else Flags()


def _deepseek(row: Row, concurrency: int) -> Flags:
    """With TensorRT-LLM. With groups that attend to requests of their own, prompts wait until each
    group has one (enable_balance), at most 60 passes (timeout_iters)."""
    prompt, b200, groups = row.lengths[0], row.hardware == "b200", row.dp_attention
    budget = -(-(concurrency + prompt + _BLOCK) // _BLOCK) * _BLOCK
    budget = max(8192 if row.date >= _LEAST_SINCE else 0, budget)
    found = Flags(budget, memory=0.8 if b200 else 0.75, kv_dtype="fp8")
    if groups > 1:
        permille = 1000 * (prompt + concurrency // groups) // budget
        return replace(found, wait_passes=60, wait_permille=min(1000, permille))
    delayed = b200 and row.weights == "fp8" and row.date >= _DELAYED_SINCE
    if delayed and row.lengths == (1024, 1024) and concurrency >= _BLOCK:
        return replace(found, wait_passes=40, wait_permille=800)
    return found


def server_of(row: Row, concurrency: int, given: tuple[Factor, ...]) -> Server:
    """given: factors on the engine's times. Raises CallerError for weights that do not fit."""
    machine, flags, groups = hardware.get(row.hardware), _flags(row, concurrency), row.dp_attention
    parallelism = Parallelism(max(1, row.tp) * groups, row.pp, row.ep, groups)
    model = models.get(row.model)
    model = models.checkpoint(model, row.weights) if row.weights else model
    quantized = row.engine == "trtllm" and row.weights in ("fp8", "fp4", "nvfp4")
    said = row.kv_dtype or row.limits.get("kv_cache_dtype") or flags.kv_dtype
    if (said or ("fp8" if quantized else "")) == "fp8":  # as in checkpoints of TensorRT-LLM
        model = models.cached_as(model, "fp8")
    engine = fitted.engine(engine_profiles.get(_engine(row)), machine.name, model.name, given)
    engine = replace(engine, all_reduce=flags.all_reduce or engine.all_reduce)
    large = row.engine == "sglang" and machine.hbm_bytes >= _LARGE_MEMORY
    budget = _number(row, "max_num_batched_tokens", "max_num_tokens", "chunked_prefill_size")
    budget = budget or flags.token_budget
    budget = budget or max(engine.token_budget, _SGLANG_CHUNK_LARGE if large else 0)
    running = _admitted(row, concurrency) or flags.max_running or engine.max_running
    part = _number(row, "gpu_memory_utilization", "mem_fraction_static", "kv_fraction")
    part = part or flags.memory or engine.memory_permille / 1000
    # TensorRT-LLM takes a part of what weights and buffers leave; others a part of all memory
    memory = machine.hbm_bytes * _REPORTED
    used = model.weight_bytes / parallelism.ranks + _BUFFERS[row.engine]
    left = part * (memory - used) if row.engine == "trtllm" else part * memory - used
    if left <= 0:
        raise CallerError(f"{model.name} does not fit into {machine.name}; delete the row")
    limits = int(budget), int(running), int(left)
    return Server(machine, model, parallelism, engine, *limits, flags)


def _engine(row: Row) -> str:
    """What names the engine profile, such as vllm@0.12.0."""
    text = row.engine_version
    if found := _NIM.get(text) or re.search(r"\d+\.\d[\w.]*", text):
        return f"{row.engine}@{found if isinstance(found, str) else found[0]}"
    pattern = re.compile(r"(20\d\d)-?(\d\d)")
    date = pattern.search(text) or pattern.search(row.date)
    if not date:
        return row.engine
    releases = _RELEASES[row.engine]
    earlier = [one for since, one in releases if since <= f"{date[1]}-{date[2]}"]
    return f"{row.engine}@{earlier[-1] if earlier else releases[0][1]}"


def _number(row: Row, *names: str) -> float:
    """The first number in these limits; 0 for none."""
    texts = (re.search(r"\d[\d.]*", str(row.limits.get(name))) for name in names)
    return next((float(text[0]) for text in texts if text), 0)


def _admitted(row: Row, concurrency: int) -> int:
    """Requests that the server admits at once, as the row says it; 0 for nothing."""
    if row.limits.get("max_num_seqs") == "CONC":
        return max(1, concurrency)
    text = str(row.limits.get("max_running_requests"))
    if found := re.search(r"(\d+) for 1k/1k, (\d+) else", text):
        return int(found[1] if row.lengths == (1024, 1024) else found[2])
    names = ("max_num_seqs", "max_batch_size", "max_batch", "max_running_requests")
    return int(_number(row, *names))


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
_FEW = 64  # requests that every server admits at once


def usable(row: Row) -> Load | None:
    """The requests of a row that can be replayed; None for one that is left out: two accelerators
    or a second node that no field explains, too fast, speculative decoding, a client that samples
    over the whole vocabulary, no server or lengths, an unknown model or accelerator, and more than
    64 requests at once where nothing says how many the server admits."""
    run = row.model, row.engine, row.hardware, row.weights, row.date
    ranks = row.tp * row.pp * row.dp_attention
    replicas = row.workload.get("concurrency_per_replica") or not row.kind.startswith(_KINDS[0])
    if (
        not row.gpu.lower().startswith(row.hardware.partition("_")[0])
        or (row.gpu_count > ranks >= row.ep and not replicas)
        or (row.hardware, row.model, row.engine, row.engine_version) == _TOO_FAST
        or not _SPECULATIVE.isdisjoint({(*run, 0), (*run, row.tp)})
        or "top_p" in row.note
        or row.engine not in _RELEASES
        or not row.tp
        or row.model not in models.names()
        or row.hardware.replace("_", "-") not in hardware.names()
        or (load := _load(row)) is None
    ):
        return None
    said = _admitted(row, load.concurrency) or _flags(row, load.concurrency) != Flags()
    return load if said or load.concurrency <= _FEW else None
