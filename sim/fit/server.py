"""The server of a row: model, accelerator, ranks, engine, its limits, and room for cached tokens;
and the rules by which a row is left out. None of them looks at an error.

What a row does not say comes from the version of its date, from the script that ran it
(github.com/SemiAnalysisAI/InferenceX, benchmarks/single_node, and 70b_*_trt_slurm.sh for Llama 70B
with TensorRT-LLM), from the engine's profile or from a constant here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import hicache.models as models
import sim.engine_profiles as engine_profiles
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from sim import fitted, hardware
from sim.engine_profiles import EngineProfile
from sim.fitted import Factor
from sim.hardware import HardwareProfile
from sim.times.base import Parallelism

from .rows import Load, Row, load_of, version

# The versions of public images, with the month from which runs use them.
_RELEASES = {
    "vllm": (
        *(("2024-07", "0.6.0"), ("2025-01", "0.7.3"), ("2025-04", "0.8.0"), ("2025-09", "0.10.2")),
        *(("2025-11", "0.11.2"), ("2025-12", "0.12.0"), ("2026-01", "0.14.0")),
        *(("2026-02", "0.15.1"), ("2026-03", "0.18.0"), ("2026-04", "0.20.1")),
    ),
    "sglang": (
        *(("2024-07", "0.4.0"), ("2025-08", "0.5.1"), ("2025-11", "0.5.6"), ("2026-02", "0.5.9")),
    ),
    "trtllm": (
        *(("2024-01", "0.14.0"), ("2025-05", "0.20"), ("2025-08", "1.0.0rc3")),
        *(("2025-10", "1.1.0rc2.post2"), ("2025-12", "1.2.0rc2"), ("2026-02", "1.2.0rc6")),
        ("2026-03", "1.3.0rc1"),
    ),
}
# NIM counts its own versions; these TensorRT-LLM releases are of the same months.
_NIM = {"1.3": "0.14.0", "1.8": "0.20"}
_DATE = re.compile(r"(20\d\d)-?(\d\d)")


def _engine_of(row: Row) -> str:
    """What names the engine profile, such as vllm@0.12.0."""
    text = row.engine_version
    if "NIM" in text.upper():
        number = _NIM.get(".".join(str(part) for part in version(text)[:2]))
        if number:
            return f"{row.engine}@{number}"
    elif version(text):
        found = re.search(r"\d+\.\d[\w.]*", text)
        assert found, "a version has numbers"
        return f"{row.engine}@{found[0].rstrip('.x')}"
    date = _DATE.search(text) or _DATE.search(row.date)
    if not date:
        return row.engine
    releases = _RELEASES[row.engine]
    earlier = [one for since, one in releases if since <= f"{date[1]}-{date[2]}"]
    return f"{row.engine}@{earlier[-1] if earlier else releases[0][1]}"


_BLOCK = 64
_WHOLE_NODE = 8
_RUNNING = ("max_num_seqs", "max_batch_size", "max_batch", "max_running_requests")
# Dates of changes to the scripts of DeepSeek with TensorRT-LLM (64af5a771, ec7bafaae).
_LEAST_SINCE, _DELAYED_SINCE = "2026-01-21", "2026-01-29"


@dataclass(frozen=True, slots=True)
class Flags:
    """0, "" and 0.0: the script does not say it. all_reduce: see EngineProfile. poll_passes,
    wait_passes, wait_permille: see EngineOptions."""

    token_budget: int = 0
    max_running: int = 0
    memory: float = 0.0
    kv_dtype: str = ""
    all_reduce: str = ""
    poll_passes: int = 1
    wait_passes: int = 0
    wait_permille: int = 0


NONE = Flags()


def flags_of(row: Row, concurrency: int) -> Flags:
    """The flags of the script that ran this row; `NONE` for a row of another source."""
    if "InferenceX" not in str(row.workload.get("distribution")):
        return NONE
    if row.engine == "sglang" and row.hardware == "b200":
        often = (row.model, row.weights, row.tp) == ("deepseek-v3", "fp8", 4) or concurrency < 16
        return replace(_sglang_b200(row), poll_passes=10 if often else 30)
    if row.engine == "trtllm" and row.model == "llama-3.1-70b":
        short = row.lengths == (1024, 1024) and row.tp < _WHOLE_NODE
        return Flags(wait_passes=20, wait_permille=900) if short else NONE
    if row.engine == "trtllm" and row.model == "deepseek-v3":
        return _deepseek_trtllm(row, concurrency)
    if row.engine == "trtllm" and row.model == "gpt-oss-120b":
        if row.hardware == "b200":
            return Flags(20_000, 512, 0.85, "fp8")
        return Flags(20_000, concurrency, 0.85, "bf16")
    return NONE


def _deepseek_trtllm(row: Row, concurrency: int) -> Flags:
    """With groups that attend to requests of their own, prompts wait until each group has one
    (enable_balance), at most 60 passes (timeout_iters)."""
    prompt = int(row.workload.get("isl", 0))
    budget = -(-(concurrency + prompt + _BLOCK) // _BLOCK) * _BLOCK
    if row.date >= _LEAST_SINCE:
        budget = max(8192, budget)
    found = Flags(budget, memory=0.8 if row.hardware == "b200" else 0.75, kv_dtype="fp8")
    groups = row.dp_attention or 1
    if groups > 1:
        permille = 1000 * (prompt + concurrency // groups) // budget
        return replace(found, wait_passes=60, wait_permille=min(1000, permille))
    delayed = row.hardware == "b200" and row.weights == "fp8" and row.date >= _DELAYED_SINCE
    if delayed and row.workload.get("osl") == prompt == 1024 and concurrency >= _BLOCK:
        return replace(found, wait_passes=40, wait_permille=800)
    return found


def _sglang_b200(row: Row) -> Flags:
    fp8 = row.weights == "fp8"
    if row.model == "deepseek-v3":
        if fp8 and row.tp == 4:
            return Flags(8192, 32, 0.95, "fp8", "fused")
        return Flags(*((32_768, 128, 0.82) if fp8 else (16_384, 256, 0.85)), "fp8", "fused")
    if row.model == "qwen3.5-397b-a17b":
        return Flags(32_768, 128, 0.82, *(("fp8",) if fp8 else ("", "fused")))
    return NONE


# Data sheets count 2**30 bytes as a GB of device memory, of which drivers report 99 % (torch: 79.1
# GiB of an H100, 178.4 of a B200, 23.6 of an RTX 4090).
_REPORTED = 1.063
# Activations, CUDA graphs and buffers; estimates but that of vLLM, whose printed pools come out.
_BUFFERS = {"vllm": 1_700_000_000, "sglang": 0, "trtllm": 2_000_000_000}
_LARGE_MEMORY = 160_000_000_000
_SGLANG_CHUNK_LARGE = 16_384


@dataclass(frozen=True, slots=True)
class Server:
    """pool_bytes: for cached rows, of one rank. pool_tokens: of the pool, where the row says it.
    flags: of the script behind the row."""

    hardware: HardwareProfile
    model: ModelDescription
    parallelism: Parallelism
    engine: EngineProfile
    token_budget: int
    max_running: int
    pool_bytes: int
    pool_tokens: int
    flags: Flags

    def tokens_in_pool(self, length: int) -> int:
        """Tokens of requests of this length that the pools of all attention groups hold: a window
        as far as it reaches, a state once for each request."""
        if self.pool_tokens:
            return self.pool_tokens
        tp = self.parallelism.attention_tp
        held = sum(
            pool.page_bytes(self.model.page_size, tp)
            if pool.kind == "state"
            else min(length, pool.window or length) * pool.token_bytes(tp)
            for pool in self.model.pools
        )
        groups = self.parallelism.attention_dp
        return int(self.pool_bytes * self.parallelism.pp * length / held) * groups


def server_of(row: Row, concurrency: int, given: tuple[Factor, ...]) -> Server:
    """given: factors on the engine's times. Raises CallerError for weights that do not fit."""
    machine = hardware.get(_accelerator(row))
    groups = row.dp_attention or 1
    parallelism = Parallelism(max(1, row.tp) * groups, row.pp, row.ep or 1, groups)
    flags = flags_of(row, concurrency)
    model = _model(row, flags)
    engine = fitted.engine(engine_profiles.get(_engine_of(row)), machine.name, model.name, given)
    if flags.all_reduce:
        engine = replace(engine, all_reduce=flags.all_reduce)
    budget = _number(row.limits, "max_num_batched_tokens", "max_num_tokens", "chunked_prefill_size")
    budget = budget or flags.token_budget
    if not budget:
        large = row.engine == "sglang" and machine.hbm_bytes >= _LARGE_MEMORY
        budget = max(engine.token_budget, _SGLANG_CHUNK_LARGE if large else 0)
    return Server(
        machine,
        model,
        parallelism,
        engine,
        budget,
        _max_running(row, flags, engine, concurrency),
        _pool_bytes(row.engine, machine, model, parallelism, _fraction(row, flags, engine)),
        16 * _number(row.limits, "kv_blocks_of_16") or _number(row.limits, "max_total_tokens"),
        flags,
    )


def _accelerator(row: Row) -> str:
    return row.accelerator if _known(row.accelerator) else row.hardware


def _known(name: str) -> bool:
    return name.replace("_", "-") in hardware.names()


def _number(limits: Mapping[str, Any], *names: str) -> int:
    """The first of these limits that is given; of a text, its first integer. 0 for none."""
    for name in names:
        value = limits.get(name)
        if isinstance(value, str):
            found = re.search(r"\d[\d,]*", value)
            value = int(found[0].replace(",", "")) if found else 0
        if isinstance(value, int) and value > 0:
            return value
    return 0


def _model(row: Row, flags: Flags) -> ModelDescription:
    model = models.get(row.model)
    if row.weights:
        model = models.checkpoint(model, row.weights)
    cached = row.kv_dtype or ("fp8" if row.limits.get("kv_cache_dtype") == "fp8" else "")
    cached = cached or flags.kv_dtype
    if not cached and row.engine == "trtllm" and row.weights in ("fp8", "fp4", "nvfp4"):
        cached = "fp8"  # as in checkpoints quantised for TensorRT-LLM
    return models.cached_as(model, cached) if cached == "fp8" else model


def _max_running(row: Row, flags: Flags, engine: EngineProfile, concurrency: int) -> int:
    if row.limits.get("max_num_seqs") == "CONC":
        return max(1, concurrency)
    text = row.limits.get("max_running_requests")
    if isinstance(text, str) and (found := re.search(r"(\d+) for 1k/1k, (\d+) else", text)):
        return int(found[1] if row.lengths == (1024, 1024) else found[2])
    return _number(row.limits, *_RUNNING) or flags.max_running or engine.max_running


def _fraction(row: Row, flags: Flags, engine: EngineProfile) -> float:
    """The part of memory: a number, or the first one of a text such as "0.90 or 0.95"."""
    for name in ("gpu_memory_utilization", "mem_fraction_static", "kv_fraction"):
        value = row.limits.get(name)
        if isinstance(value, str) and (found := re.search(r"0?\.\d+", value)):
            return float(found[0])
        if isinstance(value, float):
            return value
    return flags.memory or engine.memory_permille / 1000


def _pool_bytes(
    engine: str,
    machine: HardwareProfile,
    model: ModelDescription,
    parallelism: Parallelism,
    fraction: float,
) -> int:
    """Bytes of a rank for cached rows. vLLM and SGLang take a part of the whole memory, of which
    weights and buffers go off; TensorRT-LLM takes a part of what these leave."""
    memory = machine.hbm_bytes * _REPORTED
    used = model.weight_bytes / parallelism.ranks + _BUFFERS[engine]
    left = fraction * (memory - used) if engine == "trtllm" else fraction * memory - used
    if left <= 0:
        raise CallerError(f"{model.name} does not fit into {machine.name}; delete the row")
    return int(left)


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
    if (
        _contradicts(row)
        or (row.hardware, row.model, row.engine, row.engine_version) == _TOO_FAST
        or not _SPECULATIVE.isdisjoint({(*run, 0), (*run, row.tp)})
        or "top_p" in row.note
        or row.engine not in _RELEASES
        or not row.tp
        or row.model not in models.names()
        or not _known(_accelerator(row))
    ):
        return None
    load = load_of(row)
    return None if load is None or _may_wait(row, load) else load


def _contradicts(row: Row) -> bool:
    proposed, told = row.hardware, row.accelerator
    if told not in (proposed, "none") and (told, proposed) != ("h800", "h100"):
        return True
    ranks = row.tp * row.pp * (row.dp_attention or 1)
    replicas = row.workload.get("concurrency_per_replica") or "closed-loop" not in row.kind
    return bool(row.tp and row.gpu_count > ranks and not replicas and row.ep <= ranks)


def _may_wait(row: Row, load: Load) -> bool:
    """Whether some requests may wait for a limit of the server that nobody says."""
    said = _number(row.limits, *_RUNNING) or row.limits.get("max_num_seqs") == "CONC"
    flags = flags_of(row, load.concurrency)
    return load.concurrency > _FEW and not said and flags == NONE
