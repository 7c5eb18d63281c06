"""What every family says of a model in the same words, and the description made of it.

Lives here: the figures that a family hands on as they stand, and their defaults. Must not live
here: a family's pools, or which elements its heads multiply.
"""

from __future__ import annotations

from typing import NamedTuple, NotRequired, TypedDict, Unpack

from ._pool import PoolDescription
from .base import ModelDescription


class Dense(TypedDict):
    """Fields of `ModelDescription`, under their names."""

    hidden_size: int
    vocabulary: int
    attention_heads: int
    parameters: int
    embeddings: NotRequired[int]
    weight_bytes: NotRequired[int]


class Figures(Dense):
    """The same of a model that may have routed experts."""

    active_parameters: int
    experts: NotRequired[int]
    experts_per_token: NotRequired[int]


class Elements(NamedTuple):
    """What a head multiplies and sums, in prefill and in decode."""

    score: int
    value: int
    decode_score: int
    decode_value: int


def heads_of(elements: int) -> Elements:
    """Queries, keys and values of one width, which decode reads as prefill wrote them."""
    return Elements(elements, elements, elements, elements)


def model(
    name: str,
    family: str,
    source: str,
    layers: int,
    heads: Elements,
    pools: tuple[PoolDescription, ...],
    **figures: Unpack[Figures],
) -> ModelDescription:
    """Without other word: no experts, two embeddings, weights of two bytes."""
    return ModelDescription(
        name=name,
        family=family,
        source=source,
        layers=layers,
        hidden_size=figures["hidden_size"],
        vocabulary=figures["vocabulary"],
        attention_heads=figures["attention_heads"],
        score_elements=heads.score,
        value_elements=heads.value,
        decode_score_elements=heads.decode_score,
        decode_value_elements=heads.decode_value,
        parameters=figures["parameters"],
        active_parameters=figures["active_parameters"],
        experts=figures.get("experts", 0),
        experts_per_token=figures.get("experts_per_token", 0),
        embeddings=figures.get("embeddings", 2),
        weight_bytes=figures.get("weight_bytes", 2),
        pools=pools,
    )
