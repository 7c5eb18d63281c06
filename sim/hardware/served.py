"""What `hicache calibrate --engine` adds to a hardware profile: the engine, its model, its passes.

The shape of this part of the file, and the record that it becomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hicache import models
from hicache.files import ANY, Named, Only, Record, number, whole
from hicache.models import ModelDescription

from .. import engine_profiles
from ..engine_profiles.base import EngineProfile
from .passes import PassTimes

_MOST_NS = float(1 << 40)
_NS = number(0, _MOST_NS)
_PASSES = Record(
    PassTimes,
    {"float": _NS, "tokens": [whole(1, 1 << 40)], "tokens_ns": [_NS]},
)
SHAPE = Only(
    {
        "engine": engine_profiles.SHAPE,
        "model": models.SHAPE,
        "passes": _PASSES,
        "fit": Named(ANY),
    }
)


@dataclass(frozen=True, slots=True)
class Served:
    """fit: how far the constants are from the passes that they were fitted to, as written."""

    engine: EngineProfile
    model: ModelDescription
    passes: PassTimes
    fit: Mapping[str, Any]

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> Served | None:
        """From a part of a file that has the shape. Raises CallerError for a model whose fields
        contradict each other."""
        if found is None:
            return None
        models.check(found["model"])
        return cls(found["engine"], found["model"], found["passes"], found["fit"])
