"""The model that measurements copy where none is named: small enough for any machine."""

from __future__ import annotations

from hicache import models
from hicache.models import ModelDescription, mha

TINY = "tiny"


def tiny() -> ModelDescription:
    """Four layers of two KV heads: pages of 2 KiB a token, so that a run is short anywhere."""
    return mha.describe(
        TINY,
        "made up: small enough for any machine",
        layers=4,
        hidden_size=256,
        vocabulary=256,
        attention_heads=4,
        kv_heads=2,
        head_elements=64,
        parameters=2_000_000,
    )


def names() -> list[str]:
    """Every model that can be measured with."""
    return [TINY, *models.names()]


def model_of(name: str) -> ModelDescription:
    return tiny() if name == TINY else models.get(name)
