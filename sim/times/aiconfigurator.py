"""What AIConfigurator calls our models, accelerators, engines and types of weights.

Does not call the library. A model is found by its shape and not by its name, so that a description
of the user's own is found too, and one that only has a known name is not.


Times from kernels that NVIDIA measured: the tables of AIConfigurator (the extra `times`).

`aiconfigurator-core` (Apache-2.0) has times of matrix products, attention, experts and exchanges
between ranks, by accelerator, engine and type, and a compiled engine that interpolates them for a
model. This module asks that engine for the operations of each pass:

    layers    every operation but those below and the output head, for all tokens of the pass
            + attention of the prompt chunks   (batch of their mean length, by their exact pairs)
            + attention of the decoding sequences   (at their mean context)
    overhead  the output head for each sequence that samples

The tables are of kernels that run in a loop. They contain no host work of an engine, no gap between
kernels and no sampling; the engine profile adds what it knows of these (see sim/engine_profiles).
The tables of an engine are those of one version, the newest, whatever the profile's version is.
Loads, stores and copies are not in the tables; those times are ours with every time model.

Measured times are not monotone: a larger pass may be a little faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.metadata import version
from math import ceil

from aiconfigurator_core import AicEngine
from aiconfigurator_core.sdk.engine import compile_engine
from aiconfigurator_core.sdk.perf_database import resolve_query_version

from hicache.core.errors import CallerError
from hicache.models import ModelDescription

from ..engine_profiles import EngineProfile
from ..hardware import HardwareProfile
from .base import Chunks, Parallelism

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


SUMMARY = "kernels that NVIDIA measured (AIConfigurator), by engine"

_NS = 1_000_000  # of a millisecond, in which the library answers
# Operations whose time depends on the lengths of sequences and not on the number of tokens alone.
_OF_SEQUENCES = ("attention", "mla_block", "gdn_conv1d", "gdn_scan", "gdn_recurrence")
_HEAD = ("logits_gemm",)
_LACKS = (RuntimeError, ValueError, KeyError, AssertionError)  # what the library raises
_Evaluate = Callable[..., list[tuple[str, float, float, str]]]


logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)


def times(
    model: ModelDescription,
    hardware: HardwareProfile,
    parallelism: Parallelism,
    engine: EngineProfile | None,
) -> MeasuredKernels:
    """Raises CallerError, in one line, for what the tables lack."""
    backend = engine.name if engine and engine.name in ENGINES else ENGINES[0]
    system, known = system_of(hardware.name), model_of(model)
    shares = [
        ("tp_size", parallelism.attention_tp),
        ("pp_size", 1),
        ("attention_dp_size", parallelism.attention_dp),
    ]
    if model.experts:
        shares.append(("moe_ep_size", parallelism.ep))
        shares.append(("moe_tp_size", parallelism.tp // parallelism.ep))
    lacks = ""
    for modes in precisions(model, hardware, backend):
        try:
            return _measured(
                known, model.layers, system, backend, tuple(shares), tuple(modes.items())
            )
        except _LACKS as error:
            lacks = lacks or str(error).partition("\n")[0]
    raise CallerError(
        f"--times aiconfigurator: expected tables of {known} at "
        f"{', '.join(f'{name} {size}' for name, size in shares)} with weights in "
        f"{model.weight_dtype} and cached rows in {model.kv_dtype} on {system} with {backend}, "
        f"found: {lacks[:200]}; choose --times roofline"
    )


@lru_cache(maxsize=16)  # compiling takes a second or two
def _measured(
    model: str,
    layers: int,
    system: str,
    backend: str,
    shares: tuple[tuple[str, int], ...],
    modes: tuple[tuple[str, str], ...],
) -> MeasuredKernels:
    spec = compile_engine(model, system, backend, **dict(shares), **dict(modes))
    tables = f"{system}, {backend} {resolve_query_version(system, backend, 'current')}"
    label = f"aiconfigurator-core {version('aiconfigurator-core')}, tables of {tables}"
    groups = dict(shares)["attention_dp_size"]
    found = MeasuredKernels(AicEngine.from_spec(spec), layers, groups, label)
    found.step_ns([(0, 1024)], 1, 1024)  # tables are read, and found missing, at the first use
    return found


class MeasuredKernels:
    """Durations of the passes of one model from the library's tables."""

    __slots__ = (
        "_decode",
        "_decode_cache",
        "_decode_sequences",
        "_groups",
        "_head",
        "_head_cache",
        "_prompt",
        "_prompt_cache",
        "_prompt_sequences",
        "label",
        "layers",
    )

    def __init__(self, engine: AicEngine, layers: int, groups: int, label: str) -> None:
        """groups: of ranks that attend to requests of their own."""
        self.layers, self.label = layers, label
        self._groups = groups
        prompt = _names(engine.evaluate_context_ops)
        decode = _names(engine.evaluate_generation_ops)
        self._prompt = _Operations(engine.evaluate_context_ops, prompt, rest=True)
        self._prompt_sequences = _Operations(engine.evaluate_context_ops, prompt, rest=False)
        self._decode = _Operations(engine.evaluate_generation_ops, decode, rest=True)
        self._decode_sequences = _Operations(engine.evaluate_generation_ops, decode, rest=False)
        self._head = _Operations(engine.evaluate_generation_ops, decode, head=True)
        self._prompt_cache: dict[int, float] = {}
        self._decode_cache: dict[int, float] = {}
        self._head_cache: dict[int, int] = {}

    def layer_ns(self, chunks: Chunks, decoding: int, context: int, /) -> int:
        busiest, decoding, context = _busiest(chunks, decoding, context, self._groups)
        tokens = decoding + sum(end - start for start, end in busiest)
        if not tokens:
            return 0
        total = self._sequences(busiest, decoding, context)
        if busiest:
            if tokens not in self._prompt_cache:
                self._prompt_cache[tokens] = self._prompt.ms(1, tokens, 0, 1.0, tokens)
            total += self._prompt_cache[tokens]
        else:
            if decoding not in self._decode_cache:
                self._decode_cache[decoding] = self._decode.ms(decoding, 1)
            total += self._decode_cache[decoding]
        return ceil(total * _NS / self.layers)

    def overhead_ns(self, chunks: Chunks, decoding: int, /) -> int:
        busiest, decoding, _ = _busiest(chunks, decoding, 0, self._groups)
        sampled = decoding + len(busiest)
        if not sampled:
            return 0
        if sampled not in self._head_cache:
            self._head_cache[sampled] = ceil(self._head.ms(sampled, 1) * _NS)
        return self._head_cache[sampled]

    def step_ns(self, chunks: Chunks, decoding: int, context: int, /) -> int:
        return self.layers * self.layer_ns(chunks, decoding, context) + self.overhead_ns(
            chunks, decoding
        )

    def _sequences(self, chunks: Chunks, decoding: int, context: int) -> float:
        """Milliseconds of what depends on the lengths of sequences."""
        total = 0.0
        if decoding:
            total += self._decode_sequences.ms(decoding, max(1, round(context / decoding)))
        if chunks:
            count = len(chunks)
            start = sum(chunk[0] for chunk in chunks) // count
            length = max(1, sum(chunk[1] for chunk in chunks) // count - start)
            # The library has batches of equal chunks; unequal ones have more pairs.
            pairs = sum(_pairs(*chunk) for chunk in chunks)
            unequal = pairs / (count * _pairs(start, start + length))
            for name, ms in self._prompt_sequences.each(count, length, start):
                total += ms * unequal if name.endswith("attention") else ms
        return total


class _Operations:
    """Some of the operations of one kind of pass, by their numbers in the library's list."""

    __slots__ = ("_evaluate", "_numbers")

    def __init__(
        self, evaluate: _Evaluate, names: Sequence[str], *, rest: bool = False, head: bool = False
    ) -> None:
        self._evaluate = evaluate
        kinds = [
            "head" if name.endswith(_HEAD) else "sequences" if name.endswith(_OF_SEQUENCES) else ""
            for name in names
        ]
        wanted = "head" if head else "" if rest else "sequences"
        self._numbers = [number for number, kind in enumerate(kinds) if kind == wanted]

    def ms(self, batch: int, length: int, *shape: float) -> float:
        """Milliseconds of all of them; 0 if there are none."""
        return sum(ms for _, ms in self.each(batch, length, *shape))

    def each(self, batch: int, length: int, *shape: float) -> Iterator[tuple[str, float]]:
        """Name and milliseconds of each."""
        if self._numbers:
            for name, ms, _, _ in self._evaluate(self._numbers, batch, length, *shape):
                yield name, ms


def _names(evaluate: _Evaluate) -> list[str]:
    """The names of the operations, in order."""
    found: list[str] = []
    while True:
        try:
            found.append(evaluate([len(found)], 1, 1)[0][0])
        except ValueError as error:
            if "out of range" not in str(error):
                raise
            return found


def _pairs(start: int, end: int) -> int:
    """Twice the pairs of a query and a key of a chunk under the causal mask."""
    return (end - start) * (start + end + 1)


def _busiest(chunks: Chunks, decoding: int, context: int, groups: int) -> tuple[Chunks, int, int]:
    """What the busiest group of ranks does: most chunk tokens, and an even share of decoding."""
    chunks = [chunk for chunk in chunks if chunk[1] > chunk[0]]
    if groups == 1:
        return chunks, decoding, context
    shares: list[list[tuple[int, int]]] = [[] for _ in range(groups)]
    tokens = [0] * groups
    for chunk in chunks:
        least = tokens.index(min(tokens))
        shares[least].append(chunk)
        tokens[least] += chunk[1] - chunk[0]
    return shares[tokens.index(max(tokens))], -(-decoding // groups), -(-context // groups)
