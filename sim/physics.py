"""What the kernels of a forward pass do: operations, bytes, and the time that both take.

    time = launches x fixed + ((operations / reached rate)^p + (bytes / reached bandwidth)^p)^(1/p)

Between a sum (p = 1) and the longer of both (large p). docs/times.md has the operations and bytes
of each kind of kernel. A type without units is widened and multiplied in bf16. Small kernels read
and write each product's output once, and the residual stream beside every output that ranks sum.
Ranks share every expert, or hold some whole; either way a rank reads its part of all weights that
are touched. Where tokens share a row, each counts for its share.

**Collectives** between the ranks of a stage:

    after attention   sum of the outputs over the ranks that share the heads (all-reduce)
    after the MLP     sum over all ranks of the stage; with attention groups of their own, tokens
                      are gathered before it and sums are scattered after it instead
    experts           with attention groups and whole experts, each token goes to the ranks of its
                      experts and back (all-to-all)
    context groups    see docs/times.md
    output head       the logits of all ranks are gathered

A sum of b bytes over n ranks moves 2 (n - 1) / n b bytes over a rank's link, a gathering or a
scattering half of that. Fixed times are known for 2, 4 and 8 ranks; in between the next larger
counts, and above 8 they grow in proportion to the ranks. A small sum has one phase, a large one two
with the fixed time of both; the second comes in as s / (s + 1 MiB), where s are the bytes that a
rank sends.

**Constants** are named KIND.FIELD, such as product.bf16.compute. kernels.toml has the defaults with
their sources. Factors that were fitted to whole passes change them (see sim/fitted).
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from hicache.models import ModelDescription, PoolDescription
from hicache.models.base import Matrix

from .hardware import HardwareProfile

Chunks = Sequence[tuple[int, int]]


def real(chunks: Chunks) -> list[tuple[int, int]]:
    """The chunks that have tokens."""
    return [chunk for chunk in chunks if chunk[1] > chunk[0]]


def share(total: float, largest: float, parts: int) -> float:
    """What the busiest of some parts has, if pieces go whole to one part and are spread well: the
    average, or the largest piece where that is more."""
    average = total / parts
    return largest if largest > average else average


def met(tokens: int, sequences: int, window: int) -> int:
    """The tokens of context that are read if each sequence reads at most `window` of them; 0 means
    all."""
    return min(tokens, sequences * window) if window else tokens


def twice_pairs(start: int, end: int, window: int) -> int:
    """Twice the query-key pairs of a chunk: a query at i attends to min(i + 1, window) keys."""
    pairs = (end - start) * (start + end + 1)
    full = max(start, window - 1)  # the first query that the window limits
    if window and full < end:
        pairs -= (end - full) * (full + end + 1 - 2 * window)
    return pairs


@dataclass(frozen=True, slots=True)
class Kernel:
    """Constants of one kind of kernel.

    fixed_us  of each launch, with the gap to the next kernel of a CUDA graph.
    compute   reached part of the peak rate of its operations.
    memory    reached part of the peak bandwidth of what it reads: device memory or a link.
    power     p of the formula above.
    """

    fixed_us: float = 0.0
    compute: float = 1.0
    memory: float = 1.0
    power: float = 3.0

    def ns(self, launches: float, compute_ns: float, moved_ns: float) -> float:
        """Nanoseconds of some launches. compute_ns, moved_ns: of all of them, at the peaks."""
        fixed_ns = launches * self.fixed_us * 1000
        if not compute_ns:
            return fixed_ns + moved_ns / self.memory
        if not moved_ns:
            return fixed_ns + compute_ns / self.compute
        longer, shorter = compute_ns / self.compute, moved_ns / self.memory
        if longer < shorter:
            longer, shorter = shorter, longer
        power = self.power
        both: float = longer * (1 + (shorter / longer) ** power) ** (1 / power)
        return fixed_ns + both


class Work(NamedTuple):
    """The work of one kind of kernel in a pass: launches, and the nanoseconds that its operations
    and its bytes take at the peak rates. kind: its name in the constants."""

    kind: str
    launches: float
    compute_ns: float
    moved_ns: float


class PerToken(NamedTuple):
    """Work that grows with tokens: `weights_ns` of bytes once, and the others for each token."""

    kind: str
    launches: float
    compute_ns: float
    weights_ns: float
    moved_ns: float

    def of(self, tokens: int) -> Work:
        return Work(
            self.kind,
            self.launches,
            self.compute_ns * tokens,
            self.weights_ns + self.moved_ns * tokens,
        )


_RANKS = ("2", "4", "8")  # collectives over so many ranks, and over their link
# Tokens choose their experts as if so many of them chose independently, because tokens of one text
# choose alike.
_EXPERTS_CHOICE = 0.8
# Work of the rank with the most, where experts are spread over ranks, in parts of the average.
_RANKS_IMBALANCE = 1.15
_HBM_BYTES_PER_S = 1_900_000_000_000  # HBM of Hopper and later reaches more, graphics memory less


def family(hardware: HardwareProfile) -> str:
    """The generation of an accelerator, by its units: blackwell (fp4), hopper (fp8 and HBM), ada
    (fp8 and graphics memory) or ampere."""
    if hardware.fp4_flops_per_s and hardware.hbm_bytes_per_s >= _HBM_BYTES_PER_S:
        return "blackwell"
    if hardware.fp8_flops_per_s:
        return "hopper" if hardware.hbm_bytes_per_s >= _HBM_BYTES_PER_S else "ada"
    return "ampere"


_TABLES = tomllib.loads(Path(__file__).with_name("kernels.toml").read_text())


def defaults(name: str) -> dict[str, Kernel]:
    """The constants of a generation, by kind."""
    kernels: dict[str, Kernel] = {}
    for table in (_TABLES["all"], _TABLES[name]):
        kernels |= {kind: Kernel(*values) for kind, values in table["kernels"].items()}
        for kind, (memory, *fixed_us) in table["collectives"].items():
            for ranks, fixed in zip(_RANKS, fixed_us, strict=True):
                kernels[f"{kind}.{ranks}"] = Kernel(fixed, 1.0, memory, 1.0)
    return kernels


def of_reached(kernels: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """For an accelerator whose rates are not peaks, but what products in bf16 were measured to
    reach: the others in proportion."""
    base, changed = kernels["product.bf16"], dict[str, Kernel]()
    for kind, kernel in kernels.items():
        compute, memory = kernel.compute / base.compute, kernel.memory
        if kind.rpartition(".")[2] not in _RANKS:
            memory /= base.memory
        changed[kind] = replace(kernel, compute=compute, memory=memory)
    return changed


NS = 1e9
# Bytes of a weight with its scales: one for 16, 32 or 128 elements, or for a block of 128 x 128.
WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8-block": 1.0 + 4 / 128**2,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "int4": 0.5 + 2 / 128,
}
_KERNELS_OF_SMALL_ONES = 5  # of a layer, if none are fused: two norms, two of attention, activation


def peak(hardware: HardwareProfile, dtype: str) -> int:
    """Operations per second of the units that multiply weights of this type."""
    if dtype in ("nvfp4", "mxfp4") and hardware.fp4_flops_per_s:
        # weights of mxfp4 are multiplied with inputs of fp8
        return hardware.fp4_flops_per_s if dtype == "nvfp4" else hardware.fp8_flops_per_s
    if dtype in ("fp8", "fp8-block") and hardware.fp8_flops_per_s:
        return hardware.fp8_flops_per_s
    return hardware.flops_per_s


def input_bytes(hardware: HardwareProfile, dtype: str) -> float:
    """Bytes of an element that is multiplied with a weight of this type."""
    if peak(hardware, dtype) == hardware.flops_per_s:
        return 2.0
    return WEIGHT_BYTES["nvfp4"] if dtype == "nvfp4" else 1.0


def shape(matrix: Matrix, ranks: int) -> tuple[float, float]:
    """Inputs and outputs of the products of one layer on a rank, all `count` of them together."""
    ways = 1 if matrix.split == "whole" else ranks
    outputs, inputs = matrix.outputs * matrix.count, matrix.inputs
    return (inputs / ways, outputs) if matrix.split == "inputs" else (inputs, outputs / ways)


def product(matrix: Matrix, hardware: HardwareProfile, ranks: int) -> PerToken:
    """The work of one matrix in all its layers."""
    inputs, outputs = shape(matrix, ranks)
    moved = inputs * input_bytes(hardware, matrix.dtype) + outputs * 2
    weights = inputs * outputs * WEIGHT_BYTES[matrix.dtype]
    bandwidth = hardware.hbm_bytes_per_s
    return PerToken(
        f"product.{matrix.dtype}",
        matrix.layers,
        matrix.layers * 2 * inputs * outputs * NS / peak(hardware, matrix.dtype),
        matrix.layers * weights * NS / bandwidth,
        matrix.layers * moved * NS / bandwidth,
    )


def small_kernels(
    matrices: Iterable[Matrix], hardware: HardwareProfile, ranks: int, layers: int, kept: float
) -> PerToken:
    """The work of the kernels between products. layers: of the model; kept: bytes of a token that
    the cache takes."""
    moved = kept
    for matrix in matrices:
        inputs, outputs = shape(matrix, ranks)
        each = 4 * outputs + (8 * outputs if matrix.split == "inputs" else 0)
        if input_bytes(hardware, matrix.dtype) < 2:
            each += 3 * inputs
        moved += matrix.layers * each
    return PerToken("elements", layers, 0.0, 0.0, moved * NS / hardware.hbm_bytes_per_s)


def launches_of_small(layers: int) -> int:
    """Launches of the small kernels of a pass where no graph holds them."""
    return layers * _KERNELS_OF_SMALL_ONES


def head(model: ModelDescription, hardware: HardwareProfile, ranks: int) -> PerToken:
    """The output head, for each token that is sampled."""
    return product(Matrix("head", model.hidden_size, model.vocabulary, 1), hardware, ranks)


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of all layers on the busiest of `ranks`.

    weights_ns: of one expert in all layers, at the peak bandwidth. compute_ns, moved_ns: of one
    token and one expert.
    """

    kind: str
    layers: int
    count: int
    chosen: int
    weights_ns: float
    compute_ns: float
    moved_ns: float

    def of(self, tokens: int) -> Work:
        drawn = tokens * self.chosen
        touched = self.touched(tokens, _EXPERTS_CHOICE)
        return Work(
            self.kind,
            self.layers,
            drawn * self.compute_ns,
            touched * self.weights_ns + drawn * self.moved_ns,
        )

    def touched(self, tokens: int, choice: float = 1.0) -> float:
        """Different experts of a layer that the tokens choose, on average."""
        missed: float = (1 - self.chosen / self.count) ** (tokens * choice)
        # one token chooses all its experts, however alike tokens choose
        return max(self.count * (1 - missed), float(min(tokens, 1) * self.chosen))


def experts(
    model: ModelDescription,
    matrices: list[Matrix],
    hardware: HardwareProfile,
    ranks: int,
    whole_on: int,
) -> Experts | None:
    """None for a model without routed experts. whole_on: ranks over which whole experts are
    spread."""
    if not matrices:
        return None
    dtype, layers = matrices[0].dtype, matrices[0].layers
    parameters = sum(matrix.layers * matrix.parameters for matrix in matrices)
    width = input_bytes(hardware, dtype)
    elements = sum(
        matrix.layers * (matrix.inputs * width + matrix.outputs * 2) for matrix in matrices
    )
    imbalance = _RANKS_IMBALANCE if whole_on > 1 else 1.0
    share = imbalance / ranks
    bandwidth = hardware.hbm_bytes_per_s
    return Experts(
        f"experts.{dtype}",
        layers,
        model.experts,
        model.experts_per_token,
        parameters * WEIGHT_BYTES[dtype] * share * NS / bandwidth,
        2 * parameters * share * NS / peak(hardware, dtype),
        elements * (imbalance / whole_on) * NS / bandwidth,
    )


_STATE_FLOPS = 6  # of a token and an element of the state: decay, update, output
_WIDTHS = (64, 128, 256)


class Group:
    """The layers of one pool, on one rank. Of the ranks that share the heads, `dcp` divide the
    tokens too; in decode each of these has the queries of all of them."""

    def __init__(
        self,
        model: ModelDescription,
        hardware: HardwareProfile,
        ranks: int,
        dcp: int,
        pool: PoolDescription,
    ) -> None:
        index, layers = pool.kind == "indexer", len(pool.layers)
        width = next((size for size in _WIDTHS if model.value_elements <= size), _WIDTHS[-1])
        rows = "latent" if pool.kind == "latent" else "kv"
        small = "_fp8" if pool.dtype in ("fp8", "fp4") else ""
        self._prefill = "indexer" if index else f"prefill.{width}"
        self._decode = "indexer" if index else f"decode.{rows}{small}"
        self._layers, self._dcp = layers, dcp
        self._window = 0
        if not index:
            self._window = pool.window or model.selected_tokens * pool.compression
        heads = 0.0 if index else layers * model.attention_heads / ranks
        pair_ns = 2 * heads / pool.compression * NS / hardware.flops_per_s
        elements = model.score_elements + model.value_elements
        bandwidth = hardware.hbm_bytes_per_s
        # of a token's rows in all layers; of a query-key pair; of a token's queries and outputs
        self._row_ns = float(pool.token_bytes(ranks)) * NS / bandwidth
        self._pair_ns = pair_ns * elements
        self._decode_ns = pair_ns * (model.decode_score_elements + model.decode_value_elements)
        self._query_ns = 2 * heads * elements * NS / bandwidth

    def of_prefill(self, chunks: Chunks, parts: int = 1) -> Work:
        """parts: among which whole chunks are spread; the work is that of the busiest."""
        compute = moved = most_compute = most_moved = 0.0
        for start, end in chunks:
            number = twice_pairs(start, end, self._window) / 2 * self._pair_ns
            rows = met(end, 1, self._window and end - start + self._window)
            other = rows * self._row_ns + (end - start) * self._query_ns
            compute, moved = compute + number, moved + other
            most_compute, most_moved = max(most_compute, number), max(most_moved, other)
        if parts > 1:
            compute, moved = share(compute, most_compute, parts), share(moved, most_moved, parts)
        return Work(self._prefill, self._layers, compute, moved)

    def of_decode(self, decoding: int, context: int) -> Work:
        rows = met(context, decoding, self._window)
        moved = rows * self._row_ns / self._dcp + decoding * self._query_ns * self._dcp
        return Work(self._decode, self._layers, rows * self._decode_ns, moved)


class States:
    """Recurrent states of all layers, on one rank. pools: that have them."""

    def __init__(
        self, pools: Sequence[PoolDescription], hardware: HardwareProfile, ranks: int
    ) -> None:
        size = 2 * sum(pool.page_bytes(1, ranks) for pool in pools)
        elements = sum(
            len(pool.layers) * len(pool.parts) * pool.heads * pool.head_elements / ranks
            for pool in pools
        )
        self._layers = max(len(pool.layers) for pool in pools)
        self._sequence_ns = size * NS / hardware.hbm_bytes_per_s
        self._token_ns = _STATE_FLOPS * elements * NS / hardware.flops_per_s

    def of(self, tokens: int, sequences: int) -> Work:
        return Work("state", self._layers, tokens * self._token_ns, sequences * self._sequence_ns)


_MOST = 8
_SUMS = ("custom", "fused", "nccl")
_PHASE_BYTES = 1 << 20
_ELEMENT_BYTES = 2  # of what is exchanged
_LOG_SUM_BYTES = 4  # of a head's partial output


class Collective:
    """A collective over these ranks that is done some times a pass. token_bytes: what each token
    adds to what a rank sends, all times together."""

    def __init__(
        self, kind: str, ranks: int, times: float, token_bytes: float, hardware: HardwareProfile
    ) -> None:
        known = 2
        while known < min(ranks, _MOST):
            known *= 2
        self._kind = f"{'pcie' if hardware.ranks_link == 'pcie' else kind}.{known}"
        self._times = times * max(1.0, ranks / _MOST)
        self._token_bytes = token_bytes
        self._bytes_per_ns = (hardware.ranks_link_bytes_per_s or hardware.link_bytes_per_s) / NS
        self._phased = kind in _SUMS  # large ones have two phases

    def of(self, tokens: int) -> Work:
        sent = tokens * self._token_bytes
        launches = self._times
        if self._phased and sent:
            launches += launches * sent / (sent + _PHASE_BYTES * self._times)
        return Work(self._kind, launches, 0.0, sent / self._bytes_per_ns)


def sums(
    matrices: list[Matrix],
    model: ModelDescription,
    hardware: HardwareProfile,
    kind: str,
    ranks: int,
    attention_ranks: int,
    whole_on: int,
) -> tuple[list[Collective], list[Collective]]:
    """The collectives of all layers for each token of an attention group, and for each token of the
    stage. kind: of the engine's sums: custom, nccl or fused. whole_on: ranks over which whole
    experts are spread."""
    summed = [matrix for matrix in matrices if matrix.split == "inputs"]
    attention = sum(matrix.layers for matrix in summed if matrix.part == "attention")
    sparse = max((matrix.layers for matrix in summed if matrix.routed), default=0)
    dense = max(0, model.layers - sparse)
    row = model.hidden_size * _ELEMENT_BYTES
    of_group, of_stage = [], []
    if attention_ranks > 1:
        moved = 2 * (attention_ranks - 1) / attention_ranks * row * attention
        of_group.append(Collective(kind, attention_ranks, attention, moved, hardware))
    if ranks > 1 and attention_ranks == ranks:
        times = dense + sparse
        moved = 2 * (ranks - 1) / ranks * row * times
        of_stage.append(Collective(kind, ranks, times, moved, hardware))
    elif ranks > 1:
        far = (ranks - 1) / ranks
        spread = sparse if whole_on > 1 else 0
        gathered = dense + sparse - spread
        if gathered:
            moved = 2 * far * row * gathered
            of_stage.append(Collective("all_gather", ranks, 2 * gathered, moved, hardware))
        if spread:
            # a token is sent once to each rank that has one of its experts, in half the bytes, and
            # comes back; each rank sends those of its share of the tokens
            copies = whole_on * (1 - (1 - 1 / whole_on) ** model.experts_per_token)
            moved = 1.5 * far * row * copies / ranks * spread
            of_stage.append(Collective("all_to_all", whole_on, 2 * spread, moved, hardware))
    return of_group, of_stage


def decoded(
    model: ModelDescription, hardware: HardwareProfile, ranks: int, dcp: int
) -> list[Collective]:
    """What `dcp` of `ranks` ranks that divide the context exchange for each decoding sequence."""
    layers = len({layer for pool in model.pools for layer in pool.layers})
    heads = (dcp - 1) * layers * model.attention_heads / ranks
    number = heads * model.decode_score_elements * _ELEMENT_BYTES
    result = heads * (model.decode_value_elements * _ELEMENT_BYTES + _LOG_SUM_BYTES)
    return [
        Collective("all_gather", dcp, layers, number, hardware),
        Collective("all_to_all", dcp, layers, result, hardware),
    ]


def cached(model: ModelDescription, hardware: HardwareProfile, ranks: int, dcp: int) -> Collective:
    """The gathering of the cached rows before a chunk, for each token of these."""
    layers = len({layer for pool in model.pools for layer in pool.layers})
    row = float(sum(pool.token_bytes(ranks) for pool in model.pools))
    return Collective("all_gather", dcp, layers, (dcp - 1) / dcp * row, hardware)


def logits(model: ModelDescription, hardware: HardwareProfile, ranks: int) -> list[Collective]:
    """The gathering of logits, for each token that is sampled; none on one rank."""
    if ranks == 1:
        return []
    moved = (ranks - 1) / ranks * model.vocabulary * _ELEMENT_BYTES
    return [Collective("all_gather", ranks, 1, moved, hardware)]


def send(model: ModelDescription, hardware: HardwareProfile) -> Collective:
    """What a stage of a pipeline hands on to the next, for each token."""
    return Collective("send", 2, 1, model.hidden_size * _ELEMENT_BYTES, hardware)
