"""The errors of the bridge to `transformers`: all are mistakes of the caller, in one line."""

from __future__ import annotations

from hicache.core.errors import CallerError


class UnsupportedModelError(CallerError):
    """A model whose cache has a layer that no description fits, or that is not as described."""
