"""What a model is to a cache: a list of pools, and the figures a cost model needs. Data only.

Lives here: the model's record and the sizes that follow from its fields; a pool's are in `_pool`.
Must not live here: any branch on a model's name or family; what differs between families is in the
fields that a family's builder fills in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from hicache.core.errors import CallerError

from ._pool import DTYPE_BITS, KINDS, PoolDescription, heads_per_rank

__all__ = ["DTYPE_BITS", "KINDS", "ModelDescription", "PoolDescription", "heads_per_rank"]


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """One model. `source` says where every figure is from.

    hidden_size          width of the residual stream.
    attention_heads      query heads per layer.
    score_elements       elements that a query and a key multiply, per head, in prefill.
    value_elements       elements of a value, per head, in prefill.
    decode_*_elements    the same in decode, where MLA attends to the latent itself.
    parameters           all of them.
    active_parameters    those that one token meets, embedding and output head included.
    experts, experts_per_token   routed experts of a layer and how many a token meets; 0 if dense.
    embeddings           tables of vocabulary x hidden size: 2, or 1 where tied.
    weight_bytes         bytes of a stored parameter, rounded up.
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
    pools: tuple[PoolDescription, ...]

    def __post_init__(self) -> None:
        """Raises CallerError for pools that do not fit together."""
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
    def head_parameters(self) -> int:
        """The output head: met once per sampled token, not once per prompt token."""
        return self.vocabulary * self.hidden_size

    @property
    def layer_parameters(self) -> int:
        """What one token meets in all layers together, without embedding and output head."""
        return self.active_parameters - self.embeddings * self.head_parameters

    @property
    def expert_parameters(self) -> int:
        """One routed expert, summed over the layers; 0 where there is none."""
        if not self.experts:
            return 0
        return (self.parameters - self.active_parameters) // (self.experts - self.experts_per_token)

    def pools_of(self, component: str) -> tuple[PoolDescription, ...]:
        """The component's pools: its own, then the sidecars that follow its page numbers."""
        pools = tuple(pool for pool in self.pools if pool.component == component)
        if not pools:
            raise CallerError(
                f"component: expected one of {', '.join(self.components)} for {self.name}, "
                f"found {component!r}"
            )
        return pools

    def window(self, component: str) -> int:
        """Tokens before a boundary that a hit needs of the component's own pool; 0 is all."""
        return self.pools_of(component)[0].window

    def interval(self, component: str) -> int:
        """Tokens between boundaries that get a state of the component; 0 is every page's end."""
        return max(pool.interval for pool in self.pools_of(component))

    def bytes_per_token(self, tp: int = 1) -> int:
        """Cache bytes of one token over all pools that grow with tokens, on each of `tp` ranks.

        What a token takes while all of them hold it: a window lets go of it, states are not in it.
        Rounded up, as tokens may share a row.
        """
        return ceil(sum(pool.token_bytes(tp) for pool in self.pools))

    def bytes_per_page(self, component: str, page_size: int, tp: int = 1) -> int:
        """Bytes that one page number of a component stands for, on each of `tp` ranks."""
        return sum(pool.page_bytes(page_size, tp) for pool in self.pools_of(component))

    def stages(self, pp: int) -> tuple[ModelDescription, ...]:
        """The model as each of `pp` pipeline stages caches it: its pools on a run of the layers.

        Layers keep their numbers and are shared out evenly, page numbers are common to all stages,
        and a stage without a layer of a pool holds that pool empty. Other figures stay the whole
        model's. Raises CallerError for more stages than layers.
        """
        if not 1 <= pp <= self.layers:
            raise CallerError(f"pp: expected 1 to {self.layers} stages, found {pp}")
        bounds = [self.layers * stage // pp for stage in range(pp + 1)]
        return tuple(
            replace(
                self,
                pools=tuple(
                    replace(pool, layers=tuple(n for n in pool.layers if first <= n < last))
                    for pool in self.pools
                ),
            )
            for first, last in pairwise(bounds)
        )
