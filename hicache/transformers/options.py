"""What the arguments of a cache may be. All are checked before anything has happened."""

from __future__ import annotations

import math
from typing import Any

from hicache.core.errors import CallerError

from .building import Sizes, Store

_MOST_TEXT = 200  # characters of a revision, which is a part of longer text
_MOST_TOKENS = 1 << 40
WEIGHTS = ("every_call", "versions")


def check_options(sizes: Sizes, store: Store, wait_s: Any, check_weights: Any) -> None:
    """Raises CallerError for a value that cannot be used."""
    for name, value, least, text in (
        ("page_size", sizes.page_size, 1, ""),
        ("device_tokens", sizes.device_tokens, None, ", two pages"),
        ("host_tokens", sizes.host_tokens, 0, ""),
        ("interval_tokens", sizes.interval_tokens, 1, ""),
        ("storage_bytes", store.size_bytes, 0, ""),
    ):
        least = 2 * sizes.page_size if least is None else least
        if type(value) is not int or value < least:
            raise CallerError(f"{name}: expected at least {least}{text}, found {value!r}")
        if value > _MOST_TOKENS << 20 or (name != "storage_bytes" and value > _MOST_TOKENS):
            raise CallerError(f"{name}: expected at most {_MOST_TOKENS:,}, found {value:,}")
    if store.address is not None and not isinstance(store.address, str):
        raise CallerError(f"storage: expected an address such as file:DIR, found {store.address!r}")
    if store.address is not None and sizes.host_tokens < sizes.page_size:
        raise CallerError(
            f"host_tokens: expected at least {sizes.page_size}, a page, since storage is filled "
            f"from host memory, found {sizes.host_tokens}; give host_tokens or leave storage out"
        )
    revision = store.revision
    if not isinstance(revision, str) or not revision.isprintable() or len(revision) > _MOST_TEXT:
        found = f"{len(revision)} characters" if isinstance(revision, str) else repr(revision)
        raise CallerError(
            f"revision: expected a text of at most {_MOST_TEXT} printable characters, found "
            f"{found}; give a shorter name"
        )
    check_seconds("wait_s", wait_s)
    if check_weights not in WEIGHTS:
        raise CallerError(
            f"check_weights: expected {' or '.join(WEIGHTS)}, found {check_weights!r}"
        )


def check_seconds(name: str, value: Any) -> None:
    """Raises CallerError for what is no time to wait."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not math.isfinite(value) or value < 0:
        raise CallerError(f"{name}: expected seconds, 0 or more, found {value!r}")
