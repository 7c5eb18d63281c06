"""What the arguments of a cache may be. All are checked before anything has happened."""

from __future__ import annotations

from typing import Any

from hicache.core.errors import CallerError

from .building import Sizes, Store

_MOST_TEXT = 200  # characters of a revision, which is a part of longer text
_MOST_TOKENS = 1 << 40
_MOST_BYTES = 1 << 60
_MOST_SECONDS = 1_000_000
_SHOWN = 40  # characters of a value that is wrong
WEIGHTS = ("every_call", "versions")


def check_options(sizes: Sizes, store: Store, wait_s: Any, check_weights: Any) -> None:
    """Raises CallerError for a value that cannot be used."""
    _check_count("page_size", sizes.page_size, 1)
    _check_count("device_tokens", sizes.device_tokens, 2 * sizes.page_size, ", two pages")
    _check_count("host_tokens", sizes.host_tokens, 0)
    _check_count("interval_tokens", sizes.interval_tokens, 1)
    _check_count("storage_bytes", store.size_bytes, 0, most=_MOST_BYTES)
    if store.address is not None and not isinstance(store.address, str):
        raise CallerError(
            f"storage: expected an address such as file:DIR, found {_shown(store.address)}"
        )
    if store.address is not None and sizes.host_tokens < sizes.page_size:
        raise CallerError(
            f"host_tokens: expected at least {sizes.page_size}, a page, since storage is filled "
            f"from host memory, found {sizes.host_tokens}; give host_tokens or leave storage out"
        )
    revision = store.revision
    if not isinstance(revision, str) or not revision.isprintable() or len(revision) > _MOST_TEXT:
        long = isinstance(revision, str) and len(revision) > _MOST_TEXT
        found = f"{len(revision)} characters" if long else _shown(revision)
        raise CallerError(
            f"revision: expected a text of at most {_MOST_TEXT} printable characters, found "
            f"{found}; give another name"
        )
    check_seconds("wait_s", wait_s)
    if not isinstance(check_weights, str) or check_weights not in WEIGHTS:
        raise CallerError(
            f"check_weights: expected {' or '.join(WEIGHTS)}, found {_shown(check_weights)}"
        )


def _check_count(
    name: str, value: Any, least: int, what: str = "", most: int = _MOST_TOKENS
) -> None:
    if type(value) is not int:
        raise CallerError(
            f"{name}: expected a whole number, at least {least}{what}, found {_shown(value)}"
        )
    if value < least:
        raise CallerError(f"{name}: expected at least {least}{what}, found {_shown(value)}")
    if value > most:
        raise CallerError(f"{name}: expected at most {most:,}, found {_shown(value)}")


def check_seconds(name: str, value: Any) -> None:
    """Raises CallerError for what is no time to wait."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not 0 <= value <= _MOST_SECONDS:
        raise CallerError(
            f"{name}: expected seconds, 0 to {_MOST_SECONDS:,}, found {_shown(value)}"
        )


def _shown(value: Any) -> str:
    """A wrong value, or its type, for a message: short, and on one line."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        return repr(value[:_SHOWN]) + "..." * (len(value) > _SHOWN)
    if value is None or isinstance(value, int | float):
        return repr(value)
    return type(value).__name__
