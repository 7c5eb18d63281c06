"""Models as data: one family per file, each with a function that describes a model and its models.

A user's own model is a JSON file with the same fields, named by its path; see `_document`.
"""

from __future__ import annotations

import os
from functools import cache

from hicache import registry
from hicache.core.errors import CallerError

from ._document import as_document, is_path, read
from ._hybrid import as_hybrid
from ._weights import KV_DTYPES, PRECISIONS, WEIGHT_BITS, cached_as, checkpoint, stored
from .base import Matrix, ModelDescription, PoolDescription
from .mha import TINY

__all__ = [
    "KV_DTYPES",
    "PRECISIONS",
    "TINY",
    "WEIGHT_BITS",
    "Matrix",
    "ModelDescription",
    "PoolDescription",
    "as_document",
    "as_hybrid",
    "cached_as",
    "checkpoint",
    "get",
    "is_path",
    "names",
    "stored",
]


@cache
def _by_name() -> dict[str, ModelDescription]:
    models: dict[str, ModelDescription] = {}
    for family in registry.names(__name__):
        for model in registry.load(__name__, family).MODELS:
            models[model.name] = model
    return models


def names() -> list[str]:
    """The names of all published models, sorted. `TINY` is known too, but made up."""
    return sorted(_by_name())


def _spelled(name: str) -> str:
    """The full name of a model if `name` is the beginning of exactly one, else `name`; in lower
    case."""
    known, name = names(), name.lower()
    longer = [one for one in known if one.startswith(f"{name}-")]
    return longer[0] if name not in known and len(longer) == 1 else name


def get(name: str) -> ModelDescription:
    """The model with this name or in this JSON file. Raises CallerError for a name that is unknown
    or the beginning of several, and lists those that are meant."""
    if is_path(name):
        if not name.endswith(".json") and not os.path.exists(name):
            raise _no_file(name)
        return read(name)
    if name == TINY.name:
        return TINY
    model = _by_name().get(_spelled(name))
    if model is None:
        meant = [one for one in names() if name and one.startswith(name.lower())]
        if meant:
            raise CallerError(
                f"model: expected the name of one model, found {name!r}, with which "
                f"{', '.join(meant)} begin{'s' * (len(meant) == 1)}; write the whole name"
            )
        raise _unknown(name)
    return model


def _unknown(name: str) -> CallerError:
    """The error for a name of no model; it suggests the model that the name contains."""
    known = [*names(), TINY.name]
    inside = _inside(name)
    if not inside:
        return registry.unknown("model", name, known)
    return CallerError(
        f"model: expected one of {', '.join(known)}, found {name!r}; did you mean {inside}?"
    )


def _no_file(name: str) -> CallerError:
    """The error for a name with a slash, such as one of a model hub, that no file has."""
    last = name.rpartition("/")[2]
    inside = _inside(last)
    hint = f"; did you mean {inside}?" if inside else registry.closest(last, names())
    return CallerError(
        f"model: expected a name that `hicache models` lists, or a model's JSON file, found "
        f"{name!r} and no such file{hint}"
    )


def _inside(name: str) -> str:
    """The longest name of a model that is a part of `name`; "" for none."""
    return max((one for one in names() if one in name.lower()), key=len, default="")
