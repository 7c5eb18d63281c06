"""The canary: a bug that is planted on purpose, and that the fuzzer must find.

Does not contain the bugs that measure the checks; see invariants/planted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hicache.core.ledger import Pool
from hicache.core.types import Pages


@contextmanager
def canary(on: bool) -> Iterator[None]:
    """If `on`, the last page of each group of pages that is given back leaks inside the block."""
    if not on:
        yield
        return
    give_back = Pool.give_back

    def leaking(self: Pool, pages: Pages) -> None:
        give_back(self, pages[:-1])

    Pool.give_back = leaking  # type: ignore[method-assign]
    try:
        yield
    finally:
        Pool.give_back = give_back  # type: ignore[method-assign]
