"""A model as data: its pools, its matrices, and the figures that a cost model needs.

Nothing here depends on a model's name or family: families differ in the values of the fields. For
the memory of a pool see `hicache/memory/pools`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import ceil

from hicache.core.errors import CallerError

DTYPE_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "fp4": 4}
KINDS = ("kv", "latent", "indexer", "state", "logical")
ROWS = ("kv", "latent")  # kinds of pools whose rows are what attention reads
TABLE_BYTES = 2  # of a parameter of embedding and output head, which checkpoints keep in bf16


@dataclass(frozen=True, slots=True)
class PoolDescription:
    """One pool: `parts` x `heads` x `head_elements` elements per row in each of `layers`.

    name           of the pool, unique in its model.
    component      the component whose page numbers index the pool.
    kind           the content of a row: kv (keys and values of heads), latent (one compressed row),
                   indexer (a key that selects rows), state (the state of a recurrence) or logical
                   (page numbers without bytes, which other pools follow).
    layers         the layers of the model that have the pool, ascending.
    parts          the rows of a token that a layer stores separately, in order.
    heads          the heads, which tensor parallelism divides. A latent is one head, so it is never
                   divided.
    head_elements  elements of one head of one part.
    dtype          type of an element: fp32, bf16, fp16, fp8 or fp4.
    anchor         the pool whose page numbers a sidecar follows; empty if it is not a sidecar.
    compression    tokens that share a row.
    page_rows      rows per page number, for any page size; 0 for one row per `compression` tokens.
                   One slot of a recurrent state is 1.
    window         tokens before a boundary that a hit requires of this pool; 0 means all of them.
    interval       tokens between boundaries with a state; 0 means every page boundary.
    scale_group    elements that share a scale; 0 if there are no scales.
    scale_bytes    bytes of a scale.
    tail_bytes     bytes of a head after its scales: a rotary key of another dtype, or padding.
    """

    name: str
    component: str
    kind: str
    layers: tuple[int, ...]
    parts: tuple[str, ...]
    heads: int
    head_elements: int
    dtype: str = "bf16"
    anchor: str = ""
    compression: int = 1
    page_rows: int = 0
    window: int = 0
    interval: int = 0
    scale_group: int = 0
    scale_bytes: int = 0
    tail_bytes: int = 0

    def __post_init__(self) -> None:
        """Raises CallerError, which names the pool and the field, for a value that is not legal."""
        logical = self.kind == "logical"
        dtypes, ascending = ", ".join(DTYPE_BITS), tuple(sorted(set(self.layers)))
        bits = self.head_elements * DTYPE_BITS.get(self.dtype, 8)
        scaled = bool(self.scale_group), bool(self.scale_bytes)
        for field, holds, expected in (
            ("kind", self.kind in KINDS, f"one of {', '.join(KINDS)}"),
            ("dtype", self.dtype in DTYPE_BITS, f"one of {dtypes}"),
            ("layers", self.layers == ascending, "layer numbers from 0, ascending"),
            ("layers", not (logical and self.layers), "none, as a logical pool has no bytes"),
            ("parts", logical or bool(self.parts), "at least one part"),
            ("heads", self.heads >= 1, "at least 1"),
            ("head_elements", self.head_elements >= (not logical), "at least 1"),
            ("head_elements", bits % 8 == 0, f"whole bytes of {self.dtype}"),
            ("compression", self.compression >= 1, "at least 1"),
            ("page_rows", not self.page_rows or self.compression == 1, "0 where rows compress"),
            ("interval", not self.interval or self.kind == "state", "0 but for a state"),
            ("scale_bytes", scaled[0] == scaled[1], "above 0 where scale_group is, else 0"),
        ):
            if not holds:
                result = getattr(self, field)
                raise CallerError(
                    f"pool {self.name}: {field}: expected {expected}, found {result!r}"
                )

    @property
    def head_bytes(self) -> int:
        """Bytes of one head in a row: elements, their scales, and the tail."""
        elements = self.head_elements * DTYPE_BITS[self.dtype] // 8
        scales = -(-self.head_elements // self.scale_group) if self.scale_group else 0
        return elements + scales * self.scale_bytes + self.tail_bytes

    @property
    def replicated(self) -> bool:
        """Whether all ranks of tensor parallelism have the same rows, however many they are."""
        return self.heads == 1

    def copies(self, tp: int) -> int:
        """Ranks of `tp` that have the same rows: more than one where there are more ranks than
        heads."""
        return tp * heads_per_rank(self.heads, tp) // self.heads

    def row_bytes(self, tp: int = 1) -> int:
        """Bytes of one row of one part in one layer, on each of `tp` ranks."""
        return heads_per_rank(self.heads, tp) * self.head_bytes

    def rows_per_page(self, page_size: int) -> int:
        """Rows per page number, for each part of a layer.

        Raises CallerError for a page size that is not a multiple of `compression`.
        """
        if page_size < 1:
            raise CallerError(f"page_size: expected at least 1, found {page_size}")
        if self.page_rows:
            return self.page_rows
        if page_size % self.compression:
            raise CallerError(
                f"page_size: expected a multiple of {self.compression}, the tokens that share a "
                f"row of pool {self.name}, found {page_size}"
            )
        return page_size // self.compression

    def page_bytes(self, page_size: int, tp: int = 1, among: int = 1) -> int:
        """Bytes of a page, or of a state, over all layers and parts, on each of `tp` ranks. among:
        ranks that divide rows which they have alike; 0 for all that have them."""
        rows = len(self.layers) * len(self.parts) * self.rows_per_page(page_size)
        return -(-rows * self.row_bytes(tp) // (among or self.copies(tp)))

    def token_bytes(self, tp: int = 1) -> Fraction:
        """Bytes of one token over all layers and parts, on each of `tp` ranks; 0 if the rows of a
        page do not depend on its tokens."""
        rows = 0 if self.page_rows else len(self.layers) * len(self.parts)
        return Fraction(rows * self.row_bytes(tp), self.compression)

    def trailing_pages(self, page_size: int) -> int:
        """Pages before a boundary that a storage hit requires of this pool; 0 means all of them."""
        return -(-self.window // page_size)


def heads_per_rank(heads: int, tp: int) -> int:
    """Heads on each of `tp` ranks: an equal share, or a copy of one head if there are fewer heads
    than ranks.

    Raises CallerError if neither number divides the other.
    """
    if tp < 1 or (heads % tp and tp % heads):
        good = ", ".join(str(count) for count in range(1, heads + 1) if heads % count == 0)
        raise CallerError(
            f"tp: expected a divisor or a multiple of {heads} heads, found {tp}; use "
            f"{good} or {2 * heads}"
        )
    return max(1, heads // tp)


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix product of a layer: rows of `inputs` elements become rows of `outputs` elements.

    name       what engines call it, fused as engines fuse it: qkv, gate_up.
    inputs     elements of a row before the product, on all ranks together (k of a GEMM).
    outputs    elements of a row after it, on all ranks together (n of a GEMM).
    layers     how many layers have it.
    split      how tensor parallelism divides it: by outputs (column parallel), by inputs (row
               parallel, an all-reduce follows), or whole on every rank.
    part       attention, mlp (and shared experts), experts, or what stays in bf16 whatever the
               type of the weights: router and other. Of experts it is the matrix of one routed
               expert; a token uses `experts_per_token` of them in a layer.
    dtype      how the weights are stored: bf16, fp8 (a scale per tensor), fp8-block (a scale for
               128 x 128), nvfp4, mxfp4 or int4.
    count      separate products of this shape in a layer, such as one for each group of heads;
               where it is split, ranks share them.
    expands    prefill multiplies it with the row of every token of the context, cached ones too,
               and not with the new tokens alone: the expansion of MLA's latents.
    """

    name: str
    inputs: int
    outputs: int
    layers: int
    split: str = "outputs"
    part: str = "mlp"
    dtype: str = "bf16"
    count: int = 1
    expands: bool = False

    @property
    def routed(self) -> bool:
        """Whether it is the matrix of one routed expert."""
        return self.part == "experts"

    @property
    def parameters(self) -> int:
        """In one layer; of one expert, if it is routed."""
        return self.count * self.inputs * self.outputs


def stage_layers(layers: int, stages: int) -> list[tuple[int, int]]:
    """The layers of each pipeline stage, [first, last): divided evenly."""
    return list(pairwise(layers * stage // stages for stage in range(stages + 1)))


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """One model; 0 for a figure that is not known. `source` says where they come from.

    hidden_size          width of the residual stream.
    attention_heads      query heads per layer.
    score_elements       elements of a query and a key that are multiplied, per head, in prefill.
    value_elements       elements of a value, per head, in prefill.
    decode_*_elements    the same in decode, where MLA attends to the latent itself.
    parameters           number of all parameters.
    active_parameters    parameters used for one token, including embedding and output head.
    experts, experts_per_token   routed experts of a layer, and how many of them a token uses; 0 if
                         the model is dense.
    embeddings           tables of vocabulary x hidden size: 2, or 1 if they are tied.
    weight_bytes         bytes of all stored weights, with their scales.
    expert_bytes         bytes of one routed expert's weights, summed over the layers; 0 if the
                         model is dense.
    pools                what a cached prefix holds.
    weight_dtype         the type of the weights, in words.
    page_size            tokens of a page, where the user names no other size.
    matrices             every matrix that the layers multiply with; empty if they are not known.
    selected_tokens      the most rows that a query of sparse attention reads, each of a token or of
                         the tokens that share it; 0 for all.
    """

    name: str
    layers: int
    pools: tuple[PoolDescription, ...]
    family: str = ""
    source: str = ""
    hidden_size: int = 0
    vocabulary: int = 0
    attention_heads: int = 0
    score_elements: int = 0
    value_elements: int = 0
    decode_score_elements: int = 0
    decode_value_elements: int = 0
    parameters: int = 0
    active_parameters: int = 0
    experts: int = 0
    experts_per_token: int = 0
    embeddings: int = 0
    weight_bytes: int = 0
    expert_bytes: int = 0
    weight_dtype: str = "bf16"
    page_size: int = 64
    matrices: tuple[Matrix, ...] = ()
    selected_tokens: int = 0

    def __post_init__(self) -> None:
        """Raises CallerError without pools, and for pools that do not fit together."""
        if not self.pools:
            raise CallerError(f"model {self.name}: pools: expected at least one, found none")
        before: dict[str, PoolDescription] = {}
        for pool in self.pools:
            if pool.name in before:
                raise CallerError(f"pool {pool.name}: name: expected one pool of it, found two")
            if pool.layers and pool.layers[-1] >= self.layers:
                raise CallerError(
                    f"pool {pool.name}: layers: expected numbers below {self.layers}, the model's "
                    f"layers, found {pool.layers[-1]}"
                )
            anchor = before.get(pool.anchor)
            if pool.anchor and (anchor is None or anchor.component != pool.component):
                raise CallerError(
                    f"pool {pool.name}: anchor: expected an earlier pool of component "
                    f"{pool.component}, found {pool.anchor!r}"
                )
            before[pool.name] = pool

    @property
    def components(self) -> tuple[str, ...]:
        """Components in the order of their first pool."""
        return tuple(dict.fromkeys(pool.component for pool in self.pools))

    @property
    def kv_heads(self) -> int:
        """Heads of the first pool with keys and values; 1 where it has latents."""
        return next((pool.heads for pool in self.pools if pool.kind in ROWS), 1)

    @property
    def head_parameters(self) -> int:
        """Parameters of the output head. It is used once per sampled token, not per prompt
        token."""
        return self.vocabulary * self.hidden_size

    @property
    def layer_parameters(self) -> int:
        """Parameters used for one token in all layers, without embedding and output head."""
        return self.active_parameters - self.embeddings * self.head_parameters

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert, summed over the layers; 0 if there are no experts."""
        if not self.experts:
            return 0
        return (self.parameters - self.active_parameters) // (self.experts - self.experts_per_token)

    @property
    def head_bytes(self) -> int:
        """Bytes of the output head's weights."""
        return TABLE_BYTES * self.head_parameters

    @property
    def layer_bytes(self) -> int:
        """Bytes of the weights that every token uses in all layers: without routed experts,
        embedding and output head."""
        return (
            self.weight_bytes - self.experts * self.expert_bytes - self.embeddings * self.head_bytes
        )

    @property
    def kv_dtype(self) -> str:
        """The types of the pools with keys, values or latents, in order."""
        rows = [pool.dtype for pool in self.pools if pool.kind in ROWS]
        return ", ".join(dict.fromkeys(rows)) or "none"

    def pools_of(self, component: str) -> tuple[PoolDescription, ...]:
        """The component's pools: its own, then the sidecars that follow its page numbers. Raises
        CallerError for a component that the model does not have."""
        pools = tuple(pool for pool in self.pools if pool.component == component)
        if not pools:
            raise CallerError(
                f"component: expected one of {', '.join(self.components)} for {self.name}, "
                f"found {component!r}"
            )
        return pools

    def window(self, component: str) -> int:
        """Tokens before a boundary that a hit requires of the component; 0 means all of them."""
        return self.pools_of(component)[0].window

    def interval(self, component: str) -> int:
        """Tokens between boundaries with a state of the component; 0 means every page boundary."""
        return max(pool.interval for pool in self.pools_of(component))

    def bytes_per_token(self, tp: int = 1) -> int:
        """Cache bytes of one token over all pools that grow with tokens, on each of `tp` ranks.

        This includes the pools of windows, which free the token later, and no states. It is rounded
        up, because tokens may share a row.
        """
        return ceil(sum(pool.token_bytes(tp) for pool in self.pools))

    def bytes_per_page(self, component: str, page_size: int, tp: int = 1, among: int = 1) -> int:
        """Bytes per page number of a component, over all its pools, on each of `tp` ranks. among:
        as for a pool."""
        return sum(pool.page_bytes(page_size, tp, among) for pool in self.pools_of(component))

    def stages(self, pp: int) -> tuple[ModelDescription, ...]:
        """One description per pipeline stage, with the pools of the layers of that stage.

        The layers are divided evenly and keep their numbers. All stages have the same page numbers.
        If a stage has no layer of a pool, the pool has no layers there. All other figures are those
        of the whole model. Raises CallerError as `stage_layers` does.
        """
        return tuple(
            replace(
                self,
                pools=tuple(
                    replace(pool, layers=tuple(n for n in pool.layers if first <= n < last))
                    for pool in self.pools
                ),
            )
            for first, last in self.stage_layers(pp)
        )

    def stage_layers(self, pp: int) -> list[tuple[int, int]]:
        """The layers of each pipeline stage, [first, last). Raises CallerError for fewer than 1
        stage and for more stages than layers."""
        if not 1 <= pp <= self.layers:
            raise CallerError(
                f"pp: expected 1 to {self.layers} stages, one for each layer of {self.name} at "
                f"most, found {pp}; use fewer"
            )
        return stage_layers(self.layers, pp)
