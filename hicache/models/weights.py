"""Variants of a model: its weights and cached rows in other types, the bytes that follow, which
published checkpoints have which, and an invented hybrid of the same size."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

from hicache.core.components import residency
from hicache.core.errors import CallerError

from .base import ROWS, Matrix, ModelDescription, PoolDescription

KV_DTYPES = ("fp32", "bf16", "fp16", "fp8")

# Bits of a parameter with its share of the scales; a scale of a whole tensor is left out.
# fp8-block: an fp32 scale for each block of 128 x 128 (DeepSeek-V3). int4: a scale of 16 bits for
# each 128 (GPTQ). mxfp4: 8 bits for each 32 (OCP). nvfp4: 8 bits for each 16 (NVIDIA).
WEIGHT_BITS = {
    "bf16": Fraction(16),
    "fp8": Fraction(8),
    "fp8-block": 8 + Fraction(32, 128 * 128),
    "int4": 4 + Fraction(16, 128),
    "mxfp4": 4 + Fraction(8, 32),
    "nvfp4": 4 + Fraction(8, 16),
}


def stored(
    model: ModelDescription, dtype: str, expert_dtype: str = "", attention_dtype: str = ""
) -> ModelDescription:
    """The model with its weights in `dtype`, and the matrices of routed experts and of attention in
    types of their own if they are given.

    As in published checkpoints, embedding, output head, routers, norms and biases stay in bf16. If
    the matrices of the model are not listed, all but embedding and head changes, and `dtype` is
    that of attention too. Raises CallerError for an unknown type.
    """
    types = {"experts": expert_dtype or dtype, "attention": attention_dtype or dtype, "mlp": dtype}
    for item in types.values():
        if item not in WEIGHT_BITS:
            raise CallerError(
                f"weight_dtype: expected one of {', '.join(WEIGHT_BITS)}, found {item!r}"
            )
    matrices = tuple(
        replace(matrix, dtype=types.get(matrix.part, "bf16")) for matrix in model.matrices
    )
    tables = model.embeddings * model.head_parameters
    routed = model.experts * model.expert_parameters
    expert_bytes = _bytes(model.expert_parameters, types["experts"], matrices, routed=True)
    always = _bytes(model.parameters - tables - routed, dtype, matrices, routed=False)
    apart = "".join(
        f", {part} {types[part]}" for part in ("attention", "experts") if types[part] != dtype
    )
    return replace(
        model,
        weight_dtype=dtype + apart,
        weight_bytes=model.embeddings * model.head_bytes + always + model.experts * expert_bytes,
        expert_bytes=expert_bytes,
        matrices=matrices,
    )


def _bytes(parameters: int, dtype: str, matrices: tuple[Matrix, ...], *, routed: bool) -> int:
    """Bytes of so many parameters: those of matrices in their types, the rest (norms, biases) in
    bf16; all in `dtype` if there are no matrices."""
    if not matrices:
        return ceil(parameters * WEIGHT_BITS[dtype] / 8)
    mine = [matrix for matrix in matrices if matrix.routed == routed]
    rest = parameters - sum(matrix.layers * matrix.parameters for matrix in mine)
    bits = sum(matrix.layers * matrix.parameters * WEIGHT_BITS[matrix.dtype] for matrix in mine)
    return ceil((bits + rest * WEIGHT_BITS["bf16"]) / 8)


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


PRECISIONS = ("bf16", "fp8", "fp4", "nvfp4", "mxfp4", "int4")
_BLOCKS = ("mamba", "moe")  # families whose publisher stores fp8 in blocks


def checkpoint(model: ModelDescription, precision: str) -> ModelDescription:
    """The model as its published checkpoint of this precision stores it.

    "fp8" and "fp4" name more than one way to store weights. Sources: the files config.json and
    hf_quant_config.json of the checkpoints.

    fp8   DeepSeek, Qwen3.5 and Qwen3-235B: their publishers' own, blocks of 128 x 128. All others:
          a scale per tensor, as NVIDIA's Llama-3.1-70B-Instruct-FP8 and Qwen's
          Qwen3-32B-FP8-Static.
    fp4   gpt-oss: its own, experts in mxfp4. DeepSeek-R1-FP4 (NVIDIA): all but attention in nvfp4,
          says github.com/NVIDIA/Model-Optimizer issue 150; later ones have the output of attention
          in nvfp4 too, which is not described. Qwen3.5-397B-A17B-NVFP4: routed experts only. All
          others: every matrix but routers, as Llama-3.3-70B-Instruct-FP4.
    int4  every matrix (GPTQ, AWQ).

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


def as_hybrid(
    model: ModelDescription, components: Sequence[str], window: int, interval: int
) -> ModelDescription:
    """The model with its layers assigned to the components in turn. The first component gets the
    last layer of each round.

    window, interval: in tokens. A window layer has the same rows as the full layer before. A linear
    layer has a matrix of value x value elements per attention head in fp32, as in Gated DeltaNet.
    Raises CallerError for a component without a window or a state, and for a model that is a hybrid
    already.
    """
    if len(model.pools) != 1:
        raise CallerError(
            f"model {model.name}: expected one pool to make a hybrid of, found "
            f"{', '.join(pool.name for pool in model.pools)}"
        )
    [kv] = model.pools
    count, pools = len(components), []
    for place, name in enumerate(components):
        layers = tuple(layer for layer in kv.layers if layer % count == count - 1 - place)
        pool = replace(kv, component=name, layers=layers)
        kind = residency(name) if place else ""
        if kind == "window":
            pool = replace(pool, name=name, window=window)
        elif kind == "state":
            pool = replace(
                pool,
                name=name,
                kind="state",
                parts=("state",),
                heads=model.attention_heads,
                head_elements=model.value_elements**2,
                dtype="fp32",
                page_rows=1,
                window=1,
                interval=interval,
            )
        elif place:
            raise CallerError(
                f"component: expected one with a window or a state beside {components[0]}, "
                f"found {name!r}"
            )
        pools.append(pool)
    return replace(
        model, name=f"{model.name} as {'+'.join(components)}", family="hybrid", pools=tuple(pools)
    )
