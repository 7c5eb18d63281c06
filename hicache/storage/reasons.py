"""Why values of a call fail, from the store to whoever made the call.

A `Status` says what became of a value, and not why. A store that fails says why with `tell`, on the
thread that called it; whoever wants to know listens with `listening`. Without a listener nothing
happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_MOST = 200  # characters
_heard: ContextVar[list[str] | None] = ContextVar("heard", default=None)


def tell(reason: object) -> None:
    """Say why values of the call under way fail, in plain words. Only the first reason is kept."""
    heard = _heard.get()
    if heard is not None and not heard:
        heard.append(" ".join(str(reason).split())[:_MOST].rstrip("."))


@contextmanager
def listening() -> Iterator[list[str]]:
    """The first reason that is told in the block, or none."""
    heard: list[str] = []
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)
