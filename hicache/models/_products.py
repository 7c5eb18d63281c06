"""The matrices of the parts that families share: attention, MLP and routed experts.

Engines fuse what has the same input, so query, key and value are one product, and so are gate and
up of an MLP. What only one family has is in the file of that family.
"""

from __future__ import annotations

from ._matrix import Matrix


def attention(
    layers: int, hidden: int, heads: int, kv_heads: int, head: int, *, gated: bool = False
) -> tuple[Matrix, ...]:
    """gated: queries come with a gate of the same width for the output."""
    queries = heads * head
    out = (1 + gated) * queries + 2 * kv_heads * head
    return (
        Matrix("qkv", hidden, out, layers, "outputs", "attention"),
        Matrix("o", queries, hidden, layers, "inputs", "attention"),
    )


def mlp(layers: int, hidden: int, inner: int, name: str = "", part: str = "mlp") -> list[Matrix]:
    """A gated MLP; nothing without layers or width."""
    if not layers * inner:
        return []
    return [
        Matrix(f"{name}gate_up", hidden, 2 * inner, layers, "outputs", part),
        Matrix(f"{name}down", inner, hidden, layers, "inputs", part),
    ]


def experts(
    layers: int, hidden: int, inner: int, count: int, *, shared: int = 0
) -> tuple[Matrix, ...]:
    """The router, one of `count` routed experts, and an expert of width `shared` that all tokens
    use; an MLP if there are no experts."""
    if not count:
        return tuple(mlp(layers, hidden, inner))
    return (
        Matrix("router", hidden, count, layers, "whole", "router"),
        *mlp(layers, hidden, inner, "expert_", "experts"),
        *mlp(layers, hidden, shared, "shared_"),
    )
