"""How published checkpoints of a precision store a model: which matrices are in which type.

"fp8" and "fp4" name more than one way to store weights. Sources: the files config.json and
hf_quant_config.json of the checkpoints.

fp8   DeepSeek, Qwen3.5 and Qwen3-235B: their publishers' own, blocks of 128 x 128. All others: a
      scale per tensor, as NVIDIA's Llama-3.1-70B-Instruct-FP8 and Qwen's Qwen3-32B-FP8-Static.
fp4   gpt-oss: its own, experts in mxfp4. DeepSeek-R1-FP4 (NVIDIA): all but attention in nvfp4, says
      github.com/NVIDIA/Model-Optimizer issue 150; later ones have the output of attention in nvfp4
      too, which is not described. Qwen3.5-397B-A17B-NVFP4: routed experts only. All others: every
      matrix but routers, as Llama-3.3-70B-Instruct-FP4.
int4  every matrix (GPTQ, AWQ).
"""

from __future__ import annotations

from hicache.core.errors import CallerError

from ._weights import stored
from .base import ModelDescription

PRECISIONS = ("bf16", "fp8", "fp4", "nvfp4", "mxfp4", "int4")
_BLOCKS = ("mamba", "moe")  # families whose publisher stores fp8 in blocks


def checkpoint(model: ModelDescription, precision: str) -> ModelDescription:
    """The model as its published checkpoint of this precision stores it.

    Raises CallerError for an unknown precision.
    """
    if precision not in PRECISIONS:
        raise CallerError(
            f"precision: expected one of {', '.join(PRECISIONS)}, found {precision!r}"
        )
    if "mxfp4" in model.weight_dtype:
        if precision in ("fp8", "fp4", "mxfp4"):
            return model
        if precision == "nvfp4":
            return stored(model, model.weight_dtype.partition(",")[0], "nvfp4")
    if precision in ("bf16", "int4", "mxfp4"):
        return stored(model, precision)
    has_latents = any(matrix.expands for matrix in model.matrices)
    if precision == "fp8":
        blocks = has_latents or model.family in _BLOCKS
        return stored(model, "fp8-block" if blocks else "fp8")
    if has_latents:
        return stored(model, "nvfp4", attention_dtype="bf16")
    if model.family == "mamba":
        return stored(model, "bf16", "nvfp4")
    return stored(model, "nvfp4")
