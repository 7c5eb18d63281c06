"""The fields that every family fills in the same way, and the function that makes a description.

Does not describe the pools or heads of a family; see the file of each family.
"""

from __future__ import annotations

from typing import NamedTuple, NotRequired, TypedDict, Unpack

from ._matrix import Matrix
from ._pool import PoolDescription
from ._weights import stored
from .base import ModelDescription

PAGE_SIZE = 64


class Dense(TypedDict):
    """Fields of `ModelDescription`, under their own names, for a model without experts.

    inner: width of the MLP, or of one routed expert. Without it the matrices are not listed.
    """

    hidden_size: int
    vocabulary: int
    attention_heads: int
    parameters: int
    embeddings: NotRequired[int]
    weight_dtype: NotRequired[str]
    page_size: NotRequired[int]
    inner: NotRequired[int]


class Figures(Dense):
    """The same fields for a model that may have routed experts."""

    active_parameters: int
    experts: NotRequired[int]
    experts_per_token: NotRequired[int]
    expert_dtype: NotRequired[str]


class Elements(NamedTuple):
    """The elements that a head multiplies (score) and sums (value), in prefill and in decode."""

    score: int
    value: int
    decode_score: int
    decode_value: int


def heads_of(elements: int) -> Elements:
    """The elements of a head whose queries, keys and values have the same width."""
    return Elements(elements, elements, elements, elements)


def model(
    name: str,
    family: str,
    source: str,
    layers: int,
    heads: Elements,
    pools: tuple[PoolDescription, ...],
    matrices: tuple[Matrix, ...] = (),
    selected_tokens: int = 0,
    **figures: Unpack[Figures],
) -> ModelDescription:
    """The description of a model. Defaults: no experts, two embeddings, weights in bf16, pages of
    64 tokens. The bytes of the weights follow from their types."""
    described = ModelDescription(
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
        weight_bytes=0,
        expert_bytes=0,
        pools=pools,
        page_size=figures.get("page_size", PAGE_SIZE),
        matrices=matrices if figures.get("inner") else (),
        selected_tokens=selected_tokens,
    )
    return stored(described, figures.get("weight_dtype", "bf16"), figures.get("expert_dtype", ""))
