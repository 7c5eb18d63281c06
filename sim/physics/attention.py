"""Attention of a pass: prefill by query-key pairs, decode by context, and recurrent states.

The layers of a pool form a group, as their rows are read alike. A query at position i attends to
min(i + 1, window) keys, a chunk reads the rows from its first key to its end once, and a decoding
sequence reads its context, at most its window: on average over sequences, as the context is known
as a sum. A layer with several pools attends to each. Where tokens share a row, each counts for its
share. Sparse attention reads the rows that it selects, and the keys of its indexer whole.

A head multiplies score + value elements for a pair. Operations run at the peak of bf16; rows of
fewer bits are widened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hicache.models import ModelDescription, PoolDescription
from hicache.models.base import ROWS

from ..hardware.profile import HardwareProfile
from .kernels import Chunks, Work, met, share, twice_pairs
from .products import NS

_STATE_FLOPS = 6  # of a token and an element of the state: decay, update, output
_WIDTHS = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class Group:
    """The layers of one pool, on one rank. prefill, decode: kinds of their kernels.

    row_ns: of one token's rows in all layers, at the peak bandwidth. pair_ns, decode_ns: of one
    query-key pair in prefill and decode, at the peak rate. query_ns: of a token's queries and
    outputs. dcp: ranks that divide the tokens; in decode each has the queries of all of these.
    """

    prefill: str
    decode: str
    window: int
    layers: int
    row_ns: float
    pair_ns: float
    decode_ns: float
    query_ns: float
    dcp: int = 1

    def of_prefill(self, chunks: Chunks, parts: int = 1) -> Work:
        """parts: among which whole chunks are spread; the work is that of the busiest."""
        compute = moved = most_compute = most_moved = 0.0
        for start, end in chunks:
            one = twice_pairs(start, end, self.window) / 2 * self.pair_ns
            rows = met(end, 1, self.window and end - start + self.window)
            other = rows * self.row_ns + (end - start) * self.query_ns
            compute, moved = compute + one, moved + other
            most_compute, most_moved = max(most_compute, one), max(most_moved, other)
        if parts > 1:
            compute, moved = share(compute, most_compute, parts), share(moved, most_moved, parts)
        return Work(self.prefill, self.layers, compute, moved)

    def of_decode(self, decoding: int, context: int) -> Work:
        rows = met(context, decoding, self.window)
        moved = rows * self.row_ns / self.dcp + decoding * self.query_ns * self.dcp
        return Work(self.decode, self.layers, rows * self.decode_ns, moved)


@dataclass(frozen=True, slots=True)
class States:
    """Recurrent states of all layers, on one rank. sequence_ns: reading and writing those of a
    sequence. token_ns: operations of a token."""

    layers: int
    sequence_ns: float
    token_ns: float

    def of(self, tokens: int, sequences: int) -> Work:
        return Work("state", self.layers, tokens * self.token_ns, sequences * self.sequence_ns)


def groups(
    model: ModelDescription, hardware: HardwareProfile, ranks: int, dcp: int = 1
) -> list[Group]:
    """The groups of a model whose heads `ranks` ranks share, `dcp` of them the tokens: one for each
    pool that is read."""
    pools = [pool for pool in model.pools if pool.kind in (*ROWS, "indexer")]
    found = [_group(model, hardware, ranks, pool) for pool in pools]
    bare = model.layers - len({layer for pool in model.pools for layer in pool.layers})
    if bare:
        rows = PoolDescription("none", "none", "kv", tuple(range(bare)), ("none",), 1, 1)
        found.append(replace(_group(model, hardware, ranks, rows), row_ns=0.0))
    return [replace(one, dcp=dcp) for one in found] if dcp > 1 else found


def _group(
    model: ModelDescription, hardware: HardwareProfile, ranks: int, pool: PoolDescription
) -> Group:
    layers, bandwidth, index = len(pool.layers), hardware.hbm_bytes_per_s, pool.kind == "indexer"
    width = next((size for size in _WIDTHS if model.value_elements <= size), _WIDTHS[-1])
    small = "_fp8" if pool.dtype in ("fp8", "fp4") else ""
    prefill, decode = f"prefill.{width}", f"decode.{'latent' if pool.kind == 'latent' else 'kv'}"
    window = pool.window
    if model.selected_tokens and not window:
        window = model.selected_tokens * pool.compression
    heads = 0.0 if index else layers * model.attention_heads / ranks
    pair_ns = 2 * heads / pool.compression * NS / hardware.flops_per_s
    elements = model.score_elements + model.value_elements
    return Group(
        "indexer" if index else prefill,
        "indexer" if index else f"{decode}{small}",
        0 if index else window,
        layers,
        float(pool.token_bytes(ranks)) * NS / bandwidth,
        pair_ns * elements,
        pair_ns * (model.decode_score_elements + model.decode_value_elements),
        2 * heads * elements * NS / bandwidth,
    )


def states(model: ModelDescription, hardware: HardwareProfile, ranks: int) -> States | None:
    """None for a model without recurrent states."""
    pools = [pool for pool in model.pools if pool.kind == "state" and not pool.anchor]
    if not pools:
        return None
    size = 2 * sum(pool.page_bytes(1, ranks) for pool in pools)
    elements = sum(
        len(pool.layers) * len(pool.parts) * pool.heads * pool.head_elements / ranks
        for pool in pools
    )
    return States(
        max(len(pool.layers) for pool in pools),
        size * NS / hardware.hbm_bytes_per_s,
        _STATE_FLOPS * elements * NS / hardware.flops_per_s,
    )
