"""hicache under the models of the `transformers` library: prefix caching, host memory and disk.

`from hicache.transformers import PrefixCache` is what a program needs. Names are imported when they
are first used.
"""

from importlib import import_module
from typing import Any

from hicache.core.errors import CallerError

__all__ = [
    "ClosedError",
    "NotInstalledError",
    "PrefixCache",
    "Stats",
    "UnsupportedArgumentError",
    "UnsupportedModelError",
]
_LIBRARIES = ("torch", "transformers")


class UnsupportedModelError(CallerError):
    """A model whose cache has a layer that no description fits, or that is not as described."""


class UnsupportedArgumentError(CallerError):
    """An argument of `generate` with which nothing could be reused. `model.generate` takes it."""


class NotInstalledError(CallerError, ImportError):
    """A library is missing. The text says what installs it."""


class ClosedError(CallerError):
    """The cache was closed, or is used from inside one of its own calls."""


def __getattr__(name: str) -> Any:
    if name not in ("PrefixCache", "Stats"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(".cache", __name__)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        raise NotInstalledError(
            f"hicache.transformers: expected torch and transformers, found: {error}; "
            "pip install 'hicache[transformers]'"
        ) from error
    value = globals()[name] = getattr(module, name)
    return value
