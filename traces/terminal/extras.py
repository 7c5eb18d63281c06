"""The error for a library that an option needs and that is not installed."""

from __future__ import annotations

from hicache.core.errors import CallerError


def not_installed(option: str, extra: str, error: ModuleNotFoundError) -> CallerError:
    """extra: the one of the project that brings the library."""
    missing = str(error.name).partition(".")[0]
    return CallerError(
        f"{option}: expected {missing} to be installed, and it is not; install it (in a clone: "
        f".venv/bin/pip install -e '.[{extra}]')"
    )
