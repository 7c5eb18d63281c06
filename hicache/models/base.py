"""A model as data: its pools, and the figures that a cost model needs.

This file has the record of a model and the sizes that follow from its fields; for those of a pool
see `_pool`. Nothing here depends on a model's name or family: families differ in the values of the
fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from hicache.core.errors import CallerError

from ._matrix import Matrix
from ._pool import DTYPE_BITS, KINDS, PoolDescription, heads_per_rank

__all__ = ["DTYPE_BITS", "KINDS", "Matrix", "ModelDescription", "PoolDescription", "heads_per_rank"]

ROWS = ("kv", "latent")  # kinds of pools whose rows are what attention reads
TABLE_BYTES = 2  # of a parameter of embedding and output head, which checkpoints keep in bf16


def stage_layers(layers: int, stages: int) -> list[tuple[int, int]]:
    """The layers of each pipeline stage, [first, last): divided evenly."""
    return list(pairwise(layers * stage // stages for stage in range(stages + 1)))


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """One model. `source` says where the figures come from.

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
    family: str
    source: str
    layers: int
    hidden_size: int
    vocabulary: int
    attention_heads: int
    score_elements: int
    value_elements: int
    decode_score_elements: int
    decode_value_elements: int
    parameters: int
    active_parameters: int
    experts: int
    experts_per_token: int
    embeddings: int
    weight_bytes: int
    expert_bytes: int
    pools: tuple[PoolDescription, ...]
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
