"""Launch flags that rows of InferenceX lack, from the scripts that ran them.

Source: github.com/SemiAnalysisAI/InferenceX, benchmarks/single_node (and 70b_*_trt_slurm.sh for
Llama 70B with TensorRT-LLM), scripts of the model, accelerator and engine. What a row itself says
comes before. Does not know what a flag does (see setup).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .rows import Row

_BLOCK = 64
_WHOLE_NODE = 8


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
    if row.engine == "trtllm" and row.model == "deepseek-v3" and row.hardware == "b200":
        tokens = concurrency + int(row.workload.get("isl", 0))
        budget = max(8192, -(-tokens // _BLOCK) * _BLOCK)
        return Flags(token_budget=budget, memory=0.8, kv_dtype="fp8")
    if row.engine == "trtllm" and row.model == "gpt-oss-120b":
        if row.hardware == "b200":
            return Flags(20_000, 512, 0.85, "fp8")
        return Flags(20_000, concurrency, 0.85, "bf16")
    return NONE


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
