"""The server of a row: model, accelerator, ranks, engine, its limits, and room for cached tokens.

What a row does not say comes from the version of its date, from the script that ran it
(github.com/SemiAnalysisAI/InferenceX, benchmarks/single_node, and 70b_*_trt_slurm.sh for Llama 70B
with TensorRT-LLM), from the engine's profile or from a constant here, and is named as an
assumption. Does not know the requests (see workloads), what versions change (see
sim/engine_profiles) or run anything.
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
from sim.engine_profiles.base import EngineProfile
from sim.fitted import factors as fitted
from sim.fitted.factors import Factor
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.times.base import Parallelism

from . import names
from .rows import Row

# The versions of public images, with the month from which runs use them.
_RELEASES = {
    "vllm": (
        ("2024-07", "0.6.0"),
        ("2025-01", "0.7.3"),
        ("2025-04", "0.8.0"),
        ("2025-09", "0.10.2"),
        ("2025-11", "0.11.2"),
        ("2025-12", "0.12.0"),
        ("2026-01", "0.14.0"),
        ("2026-02", "0.15.1"),
        ("2026-03", "0.18.0"),
        ("2026-04", "0.20.1"),
    ),
    "sglang": (
        ("2024-07", "0.4.0"),
        ("2025-08", "0.5.1"),
        ("2025-11", "0.5.6"),
        ("2026-02", "0.5.9"),
    ),
    "trtllm": (
        ("2024-01", "0.14.0"),
        ("2025-05", "0.20"),
        ("2025-08", "1.0.0rc3"),
        ("2025-10", "1.1.0rc2.post2"),
        ("2025-12", "1.2.0rc2"),
        ("2026-02", "1.2.0rc6"),
        ("2026-03", "1.3.0rc1"),
    ),
}
# NIM counts its own versions; these TensorRT-LLM releases are of the same months.
_NIM = {"1.3": "0.14.0", "1.8": "0.20"}
_DATE = re.compile(r"(20\d\d)-?(\d\d)")


def engine_of(row: Row) -> tuple[str, str]:
    """(what names the engine profile, such as vllm@0.12.0, and the assumption behind it).

    The assumption is empty where the row names a version.
    """
    text = row.engine_version
    if "NIM" in text.upper():
        number = ".".join(str(part) for part in names.version(text)[:2])
        version = _NIM.get(number, "")
        if version:
            return f"{row.engine}@{version}", f"NIM {number} serves with TensorRT-LLM {version}"
    elif names.version(text):
        found = re.search(r"\d+\.\d[\w.]*", text)
        assert found, "a version has numbers"
        return f"{row.engine}@{found[0].rstrip('.x')}", ""
    date = _DATE.search(text) or _DATE.search(row.date)
    releases = _RELEASES.get(row.engine, ())
    if date and releases:
        month = f"{date[1]}-{date[2]}"
        earlier = [version for since, version in releases if since <= month]
        version = earlier[-1] if earlier else releases[0][1]
        return f"{row.engine}@{version}", f"{row.engine} {version}, by the date {month}"
    return row.engine, f"the newest known version of {row.engine}"


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
        return replace(_sglang_b200(row), poll_passes=_poll_passes(row, concurrency))
    if row.engine == "trtllm" and row.model == "llama-3.1-70b":
        if row.workload.get("isl") == row.workload.get("osl") == 1024 and row.tp < _WHOLE_NODE:
            return Flags(wait_passes=20, wait_permille=900)
        return NONE
    if row.engine == "trtllm" and row.model == "deepseek-v3":
        return _deepseek_trtllm(row, concurrency)
    if row.engine == "trtllm" and row.model == "gpt-oss-120b":
        if row.hardware == "b200":
            return Flags(20_000, 512, 0.85, "fp8")
        return Flags(20_000, concurrency, 0.85, "bf16")
    return NONE


LIMITS = ("said", "in its script", "not said")  # by the source of a row


def limits_of(row: Row, concurrency: int) -> str:
    """Where the most requests that run at once are known from: see `LIMITS`."""
    if number(row.limits, *_RUNNING) or row.limits.get("max_num_seqs") == "CONC":
        return LIMITS[0]
    return LIMITS[1] if flags_of(row, concurrency) != NONE else LIMITS[2]


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


def _poll_passes(row: Row, concurrency: int) -> int:
    """Of --scheduler-recv-interval."""
    if row.model == "deepseek-v3" and row.weights == "fp8" and row.tp == 4:
        return 10
    return 10 if concurrency < 16 else 30


def _sglang_b200(row: Row) -> Flags:
    if row.model == "deepseek-v3" and row.weights == "fp8":
        if row.tp == 4:
            return Flags(8192, 32, 0.95, "fp8", "fused")
        return Flags(32_768, 128, 0.82, "fp8", "fused")
    if row.model == "deepseek-v3":
        return Flags(16_384, 256, 0.85, "fp8", "fused")
    if row.model == "qwen3.5-397b-a17b":
        if row.weights == "fp8":
            return Flags(32_768, 128, 0.82, "fp8")
        return Flags(32_768, 128, 0.82, "", "fused")
    return NONE


# Data sheets count 2**30 bytes as a GB of device memory, of which drivers report 99 % (torch: 79.1
# GiB of an H100, 178.4 of a B200, 23.6 of an RTX 4090).
_REPORTED = 1.063
# Activations, CUDA graphs and buffers; estimates but that of vLLM. With it, vLLM's pools of two
# runs that print their size come out: 30,251 blocks of 16 for 70B on four H100, 2,588 for 8B on an
# RTX 4090.
_BUFFERS = {"vllm": 1_700_000_000, "sglang": 0, "trtllm": 2_000_000_000}
_PERMILLE = 1000
_LARGE_MEMORY = 160_000_000_000
_SGLANG_CHUNK_LARGE = 16_384
_ANY_HARDWARE = "h100"
_ANY_MODEL = "llama-3.1-8b"


@dataclass(frozen=True, slots=True)
class Setup:
    """See the module. pool_bytes: for cached rows, of one rank. pool_tokens: of the pool, where the
    row says it. flags: of the script behind the row. assumed: in plain words."""

    hardware: HardwareProfile
    model: ModelDescription
    parallelism: Parallelism
    engine: EngineProfile
    token_budget: int
    max_running: int
    pool_bytes: int
    pool_tokens: int
    flags: Flags
    assumed: tuple[str, ...]

    def tokens_in_pool(self, length: int) -> int:
        """Tokens of requests of this length that the pools of all attention groups hold.

        A window is counted as far as it reaches, and a state once for each request.
        """
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


def setup_of(row: Row, concurrency: int, given: tuple[Factor, ...] | None = None) -> Setup:
    """The server of a row. Raises CallerError for one that cannot be, such as weights that do not
    fit; rows that lack what this needs are left out before (see rules). given: factors on the
    engine's times; None for those of this project."""
    assumed: list[str] = []
    named, why = engine_of(row)
    if why:
        assumed.append(why)
    engine = engine_profiles.get(named)
    named = accelerator(row)
    if named == names.NONE:
        named = _ANY_HARDWARE
        assumed.append(f"{named}, since hits do not depend on it")
    machine = hardware.get(named)
    groups = row.dp_attention or 1
    parallelism = Parallelism(max(1, row.tp) * groups, row.pp, row.ep or 1, groups)
    flags = flags_of(row, concurrency)
    if flags != NONE:
        assumed.append("launch flags of the script of this model, accelerator and engine")
    model = _model(row, flags, assumed)
    engine = fitted.engine(engine, machine.name, model.name, given)
    if flags.all_reduce:
        engine = replace(engine, all_reduce=flags.all_reduce)
    limits = row.limits
    budget = number(limits, "max_num_batched_tokens", "max_num_tokens", "chunked_prefill_size")
    budget = budget or flags.token_budget
    if not budget:
        budget = _token_budget(row, engine, machine)
        assumed.append(f"{budget} tokens a pass")
    running = _max_running(row, flags, engine, concurrency)
    fraction = _fraction(row, flags, engine)
    blocks, total = number(limits, "kv_blocks_of_16"), number(limits, "max_total_tokens")
    return Setup(
        machine,
        model,
        parallelism,
        engine,
        budget,
        running,
        _pool_bytes(row.engine, machine, model, parallelism, fraction),
        16 * blocks if blocks else total,
        flags,
        tuple(assumed),
    )


def accelerator(row: Row) -> str:
    """The hardware profile of a row: by what the source calls its GPU, else by what the row
    proposes."""
    return row.accelerator if known_accelerator(row.accelerator) else row.hardware


def known_accelerator(name: str) -> bool:
    """Whether there is a profile with this name."""
    return name.replace("_", "-") in hardware.names()


def number(limits: Mapping[str, Any], *names: str) -> int:
    """The first of these limits that is given; of a text, its first integer. 0 for none."""
    for name in names:
        value = limits.get(name)
        if isinstance(value, str):
            found = re.search(r"\d[\d,]*", value)
            value = int(found[0].replace(",", "")) if found else 0
        if isinstance(value, int) and value > 0:
            return value
    return 0


def _model(row: Row, flags: Flags, assumed: list[str]) -> ModelDescription:
    if row.model not in models.names() and row.metrics.get("hit_rate_by_round"):
        assumed.append(f"{_ANY_MODEL}, since hits do not depend on it")
        return models.get(_ANY_MODEL)
    model = models.get(row.model)
    if row.weights:
        model = models.checkpoint(model, row.weights)
    cached = row.kv_dtype or ("fp8" if row.limits.get("kv_cache_dtype") == "fp8" else "")
    cached = cached or flags.kv_dtype
    if not cached and row.engine == "trtllm" and row.weights in ("fp8", "fp4", "nvfp4"):
        cached = "fp8"
        assumed.append("fp8 cache, as in checkpoints quantised for TensorRT-LLM")
    return models.cached_as(model, cached) if cached == "fp8" else model


def _token_budget(row: Row, engine: EngineProfile, machine: HardwareProfile) -> int:
    if row.engine == "sglang" and machine.hbm_bytes >= _LARGE_MEMORY:
        return max(engine.token_budget, _SGLANG_CHUNK_LARGE)
    return engine.token_budget


def _max_running(row: Row, flags: Flags, engine: EngineProfile, concurrency: int) -> int:
    limits = row.limits
    if limits.get("max_num_seqs") == "CONC":
        return max(1, concurrency)
    text = limits.get("max_running_requests")
    if isinstance(text, str) and (found := re.search(r"(\d+) for 1k/1k, (\d+) else", text)):
        short = row.workload.get("isl") == row.workload.get("osl") == 1024
        return int(found[1] if short else found[2])
    return number(limits, *_RUNNING) or flags.max_running or engine.max_running


def _fraction(row: Row, flags: Flags, engine: EngineProfile) -> float:
    """The part of memory: a number, or the first one of a text such as "0.90 or 0.95"."""
    for name in ("gpu_memory_utilization", "mem_fraction_static", "kv_fraction"):
        value = row.limits.get(name)
        if isinstance(value, str) and (found := re.search(r"0?\.\d+", value)):
            return float(found[0])
        if isinstance(value, float):
            return value
    return flags.memory or engine.memory_permille / _PERMILLE


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
    used = model.weight_bytes / parallelism.ranks + _BUFFERS.get(engine, 0)
    left = fraction * (memory - used) if engine == "trtllm" else fraction * memory - used
    if left <= 0:
        raise CallerError(
            f"weights of {model.name}: expected them to leave room for cached rows in "
            f"{fraction:g} of {memory / 1e9:.0f} GB, found {used / 1e9:.0f} GB of them on a rank"
        )
    return int(left)
