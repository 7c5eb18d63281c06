"""Models as data: one family per file, each with its builder and its concrete entries."""

from __future__ import annotations

from functools import cache

from hicache import registry

from .base import ModelDescription, PoolDescription

__all__ = ["ModelDescription", "PoolDescription", "get", "names"]


@cache
def _by_name() -> dict[str, ModelDescription]:
    models: dict[str, ModelDescription] = {}
    for family in registry.names(__name__):
        for model in registry.load(__name__, family).MODELS:
            models[model.name] = model
    return models


def names() -> list[str]:
    """Every model there is, sorted."""
    return sorted(_by_name())


def get(name: str) -> ModelDescription:
    """The model of that name. Raises CallerError that lists the names."""
    model = _by_name().get(name)
    if model is None:
        raise registry.unknown("model", name, names())
    return model
