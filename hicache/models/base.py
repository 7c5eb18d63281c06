"""What a model is to a cache: a list of pools, and the figures a cost model needs. Data only.

Lives here: the two records and the sizes that follow from their fields. Must not live here: any
branch on a model's name or family; what differs between families is in the fields that a family's
builder fills in.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.errors import CallerError


@dataclass(frozen=True, slots=True)
class PoolDescription:
    """One pool: `parts` x `heads` x `head_elements` elements per token in each of `layers`.

    name           of the pool, unique in its model.
    component      whose page numbers index it. A sidecar names the component of its anchor and
                   costs no page numbers of its own.
    kind           what a row is: kv (keys and values of heads) or latent (one compressed row).
    layers         the model's layers that have it, ascending.
    parts          rows of a token that a layer keeps in separate places, in order.
    heads          what tensor parallelism divides. A latent is one head, thus never divided.
    head_elements  elements of one head of one part.
    dtype_bytes    bytes of an element.
    """

    name: str
    component: str
    kind: str
    layers: tuple[int, ...]
    parts: tuple[str, ...]
    heads: int
    head_elements: int
    dtype_bytes: int

    def row_bytes(self, tp: int = 1) -> int:
        """Bytes of one token of one part in one layer, on each of `tp` ranks."""
        return heads_per_rank(self.heads, tp) * self.head_elements * self.dtype_bytes

    def token_bytes(self, tp: int = 1) -> int:
        """Bytes of one token over all layers and parts, on each of `tp` ranks."""
        return len(self.layers) * len(self.parts) * self.row_bytes(tp)


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
    weight_bytes         bytes of a stored parameter.
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

    def bytes_per_token(self, tp: int = 1) -> int:
        """Cache bytes of one token over all pools, on each of `tp` ranks."""
        return sum(pool.token_bytes(tp) for pool in self.pools)

    def bytes_per_page(self, component: str, page_size: int, tp: int = 1) -> int:
        """Bytes that one page number of a component stands for, on each of `tp` ranks."""
        if page_size < 1:
            raise CallerError(f"page_size: expected at least 1, found {page_size}")
        return page_size * sum(pool.token_bytes(tp) for pool in self.pools_of(component))


def heads_per_rank(heads: int, tp: int) -> int:
    """Heads that each of `tp` ranks holds: an equal share, or a copy of one where there are fewer.

    Raises CallerError where neither divides the other.
    """
    if tp < 1 or (heads % tp and tp % heads):
        raise CallerError(f"tp: expected a divisor or a multiple of {heads} heads, found {tp}")
    return max(1, heads // tp)
