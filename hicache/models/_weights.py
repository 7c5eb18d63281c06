"""The types of stored weights and of cached rows, and the bytes that follow from them.

Does not describe a model; a family names the types, or gives the bytes of a published checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil

from hicache.core.errors import CallerError

from .base import ROWS, ModelDescription, PoolDescription

KV_DTYPES = ("fp32", "bf16", "fp16", "fp8")

# Bits of a parameter with its share of the scales. fp8: an fp32 scale for each block of 128 x 128
# (DeepSeek-V3). int4: a scale of 16 bits for each 128 (GPTQ). mxfp4: 8 bits for each 32 (OCP).
WEIGHT_BITS = {
    "bf16": Fraction(16),
    "fp8": 8 + Fraction(32, 128 * 128),
    "int4": 4 + Fraction(16, 128),
    "mxfp4": 4 + Fraction(8, 32),
}


def stored(model: ModelDescription, dtype: str, expert_dtype: str = "") -> ModelDescription:
    """The model with its weights in `dtype`, and those of routed experts in `expert_dtype` if it is
    given. Embedding and output head stay in bf16, as in published checkpoints.

    Raises CallerError for an unknown type.
    """
    for one in (dtype, expert_dtype or dtype):
        if one not in WEIGHT_BITS:
            raise CallerError(
                f"weight_dtype: expected one of {', '.join(WEIGHT_BITS)}, found {one!r}"
            )
    tables = model.embeddings * model.head_parameters
    routed = model.experts * model.expert_parameters
    expert_bytes = ceil(model.expert_parameters * WEIGHT_BITS[expert_dtype or dtype] / 8)
    always = ceil((model.parameters - tables - routed) * WEIGHT_BITS[dtype] / 8)
    return replace(
        model,
        weight_dtype=dtype if not expert_dtype else f"{dtype}, experts {expert_dtype}",
        weight_bytes=model.embeddings * model.head_bytes + always + model.experts * expert_bytes,
        expert_bytes=expert_bytes,
    )


def cached_as(model: ModelDescription, dtype: str) -> ModelDescription:
    """The model with its keys, values and latents cached in `dtype`. States and index keys keep
    theirs, and so do rows with a layout of their own (scales or a tail).

    Raises CallerError for another type than `KV_DTYPES`, and if the model has no pool to change.
    """
    if dtype not in KV_DTYPES:
        raise CallerError(f"kv_dtype: expected one of {', '.join(KV_DTYPES)}, found {dtype!r}")
    if not any(_is_plain(pool) for pool in model.pools):
        raise CallerError(
            f"kv_dtype: expected a model with plain rows, found {model.name}, whose rows of "
            f"{model.kv_dtype} have a layout of their own; leave it out"
        )
    pools = (replace(pool, dtype=dtype) if _is_plain(pool) else pool for pool in model.pools)
    return replace(model, pools=tuple(pools))


def _is_plain(pool: PoolDescription) -> bool:
    return pool.kind in ROWS and not pool.scale_group and not pool.tail_bytes
