"""Times from kernels that NVIDIA measured: the tables of AIConfigurator (the extra `times`).

`aiconfigurator-core` (Apache-2.0) has times of matrix products, attention, experts and collectives
between ranks, by accelerator, engine and type, and a compiled engine that interpolates them for a
model. This module asks that engine for the operations of each pass:

    layers    every operation but those below and the output head, for all tokens of the pass
            + attention of the prompt chunks   (batch of their mean length, by their exact pairs)
            + attention of the decoding sequences   (at their mean context)
    overhead  the output head for each sequence that samples

The tables are of kernels that run in a loop, without host work, gaps between kernels and sampling;
the engine profile adds what it knows of these. The tables of an engine are those of its newest
version. Measured times are not monotone: a larger pass may be a little faster. A model is found by
its shape, so that a description of the user's own is found too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from math import ceil

from aiconfigurator_core import AicEngine
from aiconfigurator_core.sdk.engine import compile_engine
from aiconfigurator_core.sdk.perf_database import resolve_query_version

from hicache.core.errors import CallerError
from hicache.models import ModelDescription

from ..engine_profiles import EngineProfile
from ..hardware import HardwareProfile
from ..physics import real, twice_pairs
from .base import Chunks, Parallelism

SUMMARY = "kernels that NVIDIA measured (AIConfigurator), by engine"

ENGINES = ("vllm", "sglang", "trtllm")
# Accelerators with measured tables. The library has data sheets of more, without measurements.
SYSTEMS = {
    **{name: f"{name}_sxm" for name in ("a100", "h100", "h200", "b200", "b300")},
    **{name: name for name in ("gb200", "gb300", "l40s")},
    "rtx_pro_6000": "rtx_pro_6000_server",
}
# (layers, hidden size, attention heads, routed experts, vocabulary, whether an indexer selects the
# tokens that are attended to)
_MODELS: dict[tuple[int, int, int, int, int, bool], str] = {
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
_GEMM = {"bf16": "bfloat16", "fp8": "fp8", "fp8-block": "fp8_block", "nvfp4": "nvfp4"}
_GEMM["int4"] = "int4_wo"
_EXPERTS = {name: (mode,) for name, mode in _GEMM.items()} | {"mxfp4": ("w4a16_mxfp4",)}
# With products in fp4 and fp8, engines read mxfp4 experts with activations in fp8.
_EXPERTS_FP4 = {"mxfp4": ("w4a8_mxfp4_mxfp8", "w4a16_mxfp4")}
_CACHED = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8"}
_NS = 1_000_000  # of a millisecond, in which the library answers
# Operations whose time depends on the lengths of sequences and not on the number of tokens alone.
_OF_SEQUENCES = ("attention", "mla_block", "gdn_conv1d", "gdn_scan", "gdn_recurrence")
_HEAD = "logits_gemm"
_LACKS = (RuntimeError, ValueError, KeyError, AssertionError)  # what the library raises
_Evaluate = Callable[..., list[tuple[str, float, float, str]]]

logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)


def _refused(what: str) -> CallerError:
    return CallerError(f"--times aiconfigurator: {what}; choose --times roofline")


def system_of(hardware: str) -> str:
    """The library's name of the accelerator. Raises CallerError if it has no tables of it."""
    if hardware not in SYSTEMS:
        raise _refused(f"no measured tables of {hardware}, but of {', '.join(sorted(SYSTEMS))}")
    return SYSTEMS[hardware]


def model_of(model: ModelDescription) -> str:
    """The library's name of the model. Raises CallerError if it has no model of this shape."""
    shape = (
        *(model.layers, model.hidden_size, model.attention_heads, model.experts),
        *(model.vocabulary, bool(model.selected_tokens)),
    )
    if model.family == "hybrid" or shape not in _MODELS:
        known = ", ".join(name.partition("/")[2] for name in _MODELS.values())
        raise _refused(f"no model of the shape of {model.name}, but of {known}")
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
        raise _refused(f"no weights in {dense}, experts in {experts} and rows in {rows}")
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


def times(
    model: ModelDescription,
    hardware: HardwareProfile,
    parallelism: Parallelism,
    engine: EngineProfile | None,
) -> MeasuredKernels:
    """Raises CallerError, in one line, for what the tables lack."""
    backend = engine.name if engine and engine.name in ENGINES else ENGINES[0]
    system, known = system_of(hardware.name), model_of(model)
    groups = parallelism.attention_dp
    shares = {"tp_size": parallelism.attention_tp, "pp_size": 1, "attention_dp_size": groups}
    if model.experts:
        full = {"moe_ep_size": parallelism.ep, "moe_tp_size": parallelism.tp // parallelism.ep}
        shares |= full
    lacks = ""
    for modes in precisions(model, hardware, backend):
        try:
            items = tuple({**shares, **modes}.items())
            return _measured(known, model.layers, system, backend, groups, items)
        except _LACKS as error:
            lacks = lacks or str(error).partition("\n")[0]
    ranks = ", ".join(f"{name} {size}" for name, size in shares.items())
    raise _refused(f"no tables of {known} at {ranks} on {system} with {backend}: {lacks[:200]}")


@lru_cache(maxsize=16)  # compiling takes a second or two
def _measured(
    model: str,
    layers: int,
    system: str,
    backend: str,
    groups: int,
    texts: tuple[tuple[str, int | str], ...],
) -> MeasuredKernels:
    spec = compile_engine(model, system, backend, **dict(texts))
    tables = f"{system}, {backend} {resolve_query_version(system, backend, 'current')}"
    label = f"aiconfigurator-core {version('aiconfigurator-core')}, tables of {tables}"
    measured = MeasuredKernels(AicEngine.from_spec(spec), layers, groups, label)
    measured.layer_ns([(0, 1024)], 1, 1024)  # tables are read, and missing, at the first use
    measured.overhead_ns([], 1)
    return measured


class MeasuredKernels:
    """Durations of the passes of one model from the library's tables. groups: of ranks that attend
    to requests of their own."""

    def __init__(self, engine: AicEngine, layers: int, groups: int, label: str) -> None:
        self.layers, self.label = layers, label
        self._groups = groups
        self._prompt, self._prompt_sequences, _ = _operations(engine.evaluate_context_ops)
        decode, self._decode_sequences, head = _operations(engine.evaluate_generation_ops)
        self._prompt_ms = cache(lambda tokens: _sum(self._prompt(1, tokens, 0, 1.0, tokens)))
        self._decode_ms = cache(lambda decoding: _sum(decode(decoding, 1)))
        self._head_ms = cache(lambda sampled: _sum(head(sampled, 1)))

    def layer_ns(self, chunks: Chunks, decoding: int, context: int, /) -> int:
        busiest, decoding, context = _busiest(chunks, decoding, context, self._groups)
        tokens = decoding + sum(end - start for start, end in busiest)
        if not tokens:
            return 0
        total = self._prompt_ms(tokens) if busiest else self._decode_ms(decoding)
        if decoding:
            total += _sum(self._decode_sequences(decoding, max(1, round(context / decoding))))
        if busiest:
            count = len(busiest)
            start = sum(chunk[0] for chunk in busiest) // count
            length = max(1, sum(chunk[1] for chunk in busiest) // count - start)
            # the library has batches of equal chunks; unequal ones have more pairs
            pairs = sum(twice_pairs(*chunk, 0) for chunk in busiest)
            unequal = pairs / (count * twice_pairs(start, start + length, 0))
            for name, ms in self._prompt_sequences(count, length, start):
                total += ms * unequal if name.endswith("attention") else ms
        return ceil(total * _NS / self.layers)

    def overhead_ns(self, chunks: Chunks, decoding: int, /) -> int:
        busiest, decoding, _ = _busiest(chunks, decoding, 0, self._groups)
        sampled = decoding + len(busiest)
        return ceil(self._head_ms(sampled) * _NS) if sampled else 0


_Operations = Callable[..., list[tuple[str, float]]]


def _operations(evaluate: _Evaluate) -> list[_Operations]:
    """The operations of one kind of pass: the rest, those of sequences, and the output head. Each
    is asked with a batch, a length and more, and answers with names and milliseconds."""
    kinds: list[list[int]] = [[], [], []]
    while True:
        number = sum(map(len, kinds))
        try:
            name = evaluate([number], 1, 1)[0][0]
        except ValueError as error:
            if "out of range" not in str(error):
                raise
            return [_evaluated(evaluate, numbers) for numbers in kinds]
        kinds[2 if name.endswith(_HEAD) else name.endswith(_OF_SEQUENCES)].append(number)


def _evaluated(evaluate: _Evaluate, numbers: Sequence[int]) -> _Operations:
    def ask(*shape: float) -> list[tuple[str, float]]:
        return [(name, ms) for name, ms, _, _ in evaluate(numbers, *shape)] if numbers else []

    return ask


def _sum(operations: list[tuple[str, float]]) -> float:
    return sum(ms for _, ms in operations)


def _busiest(chunks: Chunks, decoding: int, context: int, groups: int) -> tuple[Chunks, int, int]:
    """What the busiest group of ranks does: most chunk tokens, and an even share of decoding."""
    shares: list[list[tuple[int, int]]] = [[] for _ in range(groups)]
    tokens = [0] * groups
    for chunk in real(chunks):
        least = tokens.index(min(tokens))
        shares[least].append(chunk)
        tokens[least] += chunk[1] - chunk[0]
    return shares[tokens.index(max(tokens))], -(-decoding // groups), -(-context // groups)
