"""The errors of the bridge to `transformers`: all are mistakes of the caller, in one line."""

from __future__ import annotations

from hicache.core.errors import CallerError


class UnsupportedModelError(CallerError):
    """A model whose cache has a layer that no description fits, or that is not as described."""


class UnsupportedArgumentError(CallerError):
    """An argument of `generate` with which nothing could be reused. `model.generate` takes it."""


class NotInstalledError(CallerError, ImportError):
    """A library is missing. The text says what installs it."""


class ClosedError(CallerError):
    """The cache was closed, or is used from inside one of its own calls."""
