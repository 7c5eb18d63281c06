"""What AIConfigurator calls our models, accelerators, engines and types of weights.

Does not call the library. A model is found by its shape and not by its name, so that a description
of the user's own is found too, and one that only has a known name is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from hicache.core.errors import CallerError
from hicache.models import ModelDescription

from ..hardware.profile import HardwareProfile

ENGINES = ("vllm", "sglang", "trtllm")
# Accelerators with measured tables. The library has data sheets of more, without measurements.
SYSTEMS = {
    "a100": "a100_sxm",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
    "rtx_pro_6000": "rtx_pro_6000_server",
}
# (layers, hidden size, attention heads, routed experts, vocabulary, whether an indexer selects the
# tokens that are attended to)
_Shape = tuple[int, int, int, int, int, bool]
_MODELS: dict[_Shape, str] = {
    (32, 4096, 32, 0, 128_256, False): "meta-llama/Meta-Llama-3.1-8B",
    (80, 8192, 64, 0, 128_256, False): "meta-llama/Meta-Llama-3.1-70B",
    (36, 4096, 32, 0, 151_936, False): "Qwen/Qwen3-8B",
    (64, 5120, 64, 0, 151_936, False): "Qwen/Qwen3-32B",
    (48, 2048, 32, 128, 151_936, False): "Qwen/Qwen3-30B-A3B",
    (94, 4096, 64, 128, 151_936, False): "Qwen/Qwen3-235B-A22B",
    (60, 4096, 32, 512, 248_320, False): "Qwen/Qwen3.5-397B-A17B",
    (24, 2880, 64, 32, 201_088, False): "openai/gpt-oss-20b",
    (36, 2880, 64, 128, 201_088, False): "openai/gpt-oss-120b",
    (61, 7168, 128, 256, 129_280, False): "deepseek-ai/DeepSeek-V3",
    (61, 7168, 128, 256, 129_280, True): "deepseek-ai/DeepSeek-V3.2",
}
_GEMM = {
    "bf16": "bfloat16",
    "fp8": "fp8",
    "fp8-block": "fp8_block",
    "nvfp4": "nvfp4",
    "int4": "int4_wo",
}
_EXPERTS = {
    "bf16": ("bfloat16",),
    "fp8": ("fp8",),
    "fp8-block": ("fp8_block",),
    "nvfp4": ("nvfp4",),
    "mxfp4": ("w4a16_mxfp4",),
    "int4": ("int4_wo",),
}
# With products in fp4 and fp8, engines read mxfp4 experts with activations in fp8.
_EXPERTS_FP4 = {"mxfp4": ("w4a8_mxfp4_mxfp8", "w4a16_mxfp4")}
_CACHED = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8"}
_INSTEAD = "choose --times roofline"


def system_of(hardware: str) -> str:
    """The library's name of the accelerator. Raises CallerError if it has no tables of it."""
    if hardware not in SYSTEMS:
        raise CallerError(
            f"--times aiconfigurator: expected hardware with measured tables "
            f"({', '.join(sorted(SYSTEMS))}), found {hardware!r}; {_INSTEAD}"
        )
    return SYSTEMS[hardware]


def model_of(model: ModelDescription) -> str:
    """The library's name of the model. Raises CallerError if it has no model of this shape."""
    shape = (
        *(model.layers, model.hidden_size, model.attention_heads, model.experts),
        *(model.vocabulary, bool(model.selected_tokens)),
    )
    if model.family == "hybrid" or shape not in _MODELS:
        raise CallerError(
            f"--times aiconfigurator: expected a model of the shape of "
            f"{', '.join(name.partition('/')[2] for name in _MODELS.values())}, found "
            f"{model.name}; {_INSTEAD}"
        )
    return _MODELS[shape]


def precisions(
    model: ModelDescription, hardware: HardwareProfile, engine: str
) -> Iterator[dict[str, str]]:
    """The library's modes for the types of the model's weights and cached rows, likeliest first.

    There are several because the kernels of a type differ by engine: some engines attend to rows in
    fp8 in fp8 and others in bf16. Raises CallerError for a type of which the library knows nothing.
    """
    dense = _dtype(model, routed=False)
    experts = _dtype(model, routed=True) or dense
    rows = model.kv_dtype
    if dense not in _GEMM or experts not in _EXPERTS or rows not in _CACHED:
        raise CallerError(
            f"--times aiconfigurator: expected weights in {', '.join(_GEMM)}, experts in "
            f"{', '.join(_EXPERTS)} and cached rows in {', '.join(_CACHED)}, found {dense}, "
            f"{experts} and {rows}; {_INSTEAD}"
        )
    kernels = _EXPERTS | (_EXPERTS_FP4 if hardware.fp4_flops_per_s else {})
    attention = ("bfloat16", "fp8") if engine == "vllm" else ("fp8", "bfloat16")
    for products in kernels[experts]:
        for attended in attention if rows == "fp8" else ("bfloat16",):
            yield {
                "gemm_quant_mode": _GEMM[dense],
                "moe_quant_mode": products,
                "kvcache_quant_mode": _CACHED[rows],
                "fmha_quant_mode": attended,
            }


def _dtype(model: ModelDescription, *, routed: bool) -> str:
    """The type of most parameters of these matrices; empty if there are none."""
    parameters: dict[str, int] = {}
    for matrix in model.matrices:
        if matrix.routed == routed and matrix.part not in ("router", "other"):
            size = matrix.layers * matrix.parameters
            parameters[matrix.dtype] = parameters.get(matrix.dtype, 0) + size
    return max(parameters, key=lambda dtype: parameters[dtype], default="")
