"""The canary: a bug that is there on purpose, and that the fuzzer has to find.

Must not live here: bugs that measure how good the checks are (invariants/planted).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hicache.core.ledger import Pool
from hicache.core.types import Pages


@contextmanager
def canary(on: bool) -> Iterator[None]:
    """While it lasts, and if it is on: of pages that are given back, the last one leaks."""
    if not on:
        yield
        return
    whole = Pool.give_back

    def leaking(self: Pool, pages: Pages) -> None:
        whole(self, pages[:-1])

    Pool.give_back = leaking  # type: ignore[method-assign]
    try:
        yield
    finally:
        Pool.give_back = whole  # type: ignore[method-assign]
