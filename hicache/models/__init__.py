"""Models as data: one family per file, each with a function that describes a model and its models.

A user's own model is a JSON file with the same fields, named by its path; see `_document`.
"""

from __future__ import annotations

from functools import cache

from hicache.core import registry

from ._document import as_document, is_path, read
from ._hybrid import as_hybrid
from .base import ModelDescription, PoolDescription

__all__ = [
    "ModelDescription",
    "PoolDescription",
    "as_document",
    "as_hybrid",
    "get",
    "is_path",
    "names",
    "spelled",
]


@cache
def _by_name() -> dict[str, ModelDescription]:
    models: dict[str, ModelDescription] = {}
    for family in registry.names(__name__):
        for model in registry.load(__name__, family).MODELS:
            models[model.name] = model
    return models


def names() -> list[str]:
    """The names of all models, sorted."""
    return sorted(_by_name())


def spelled(name: str) -> str:
    """The full name of a model if `name` is the beginning of exactly one, else `name`."""
    known = names()
    longer = [one for one in known if one.startswith(f"{name}-")]
    return longer[0] if name not in known and len(longer) == 1 else name


def get(name: str) -> ModelDescription:
    """The model with this name or in this JSON file. Raises CallerError, which lists the known
    names, for an unknown name."""
    if is_path(name):
        return read(name)
    model = _by_name().get(spelled(name))
    if model is None:
        raise registry.unknown("model", name, names())
    return model
