"""The models that can be measured: the published ones, and the default, small enough for any
machine."""

from __future__ import annotations

from hicache import models

TINY = models.TINY.name


def names() -> list[str]:
    """The models that can be measured."""
    return [TINY, *models.names()]
