"""The default model of measurements: small enough for any machine."""

from __future__ import annotations

from hicache import models
from hicache.models import ModelDescription, mha

TINY = "tiny"


def tiny() -> ModelDescription:
    """Four layers of two KV heads; one token has 2 KiB."""
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
    """The models that can be measured."""
    return [TINY, *models.names()]


def model_of(name: str) -> ModelDescription:
    return tiny() if name == TINY else models.get(name)
