"""Eviction policies once more, in plain lists: what the replayed policies are compared with.

Each function takes the paths of requests, a capacity, and returns the hit pages of each request.
They share no code with traces/curves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

Paths = Sequence[Sequence[int]]


def _replay(paths: Paths, resident: list[int], use: Callable[[int], None]) -> list[int]:
    """resident: what the function `use` keeps up to date."""
    hits = []
    for path in paths:
        hits.append(len([*takewhile(resident.__contains__, path)]))
        for page in path[::-1]:
            use(page)
    return hits


def lru(paths: Paths, capacity: int) -> list[int]:
    resident: list[int] = []  # coldest first

    def use(page: int) -> None:
        if page in resident:
            resident.remove(page)
        elif len(resident) == capacity:
            resident.pop(0)
        resident.append(page)

    return _replay(paths, resident, use)


def fifo(paths: Paths, capacity: int) -> list[int]:
    resident: list[int] = []

    def use(page: int) -> None:
        if page not in resident:
            if len(resident) == capacity:
                resident.pop(0)
            resident.append(page)

    return _replay(paths, resident, use)


def sieve(paths: Paths, capacity: int) -> list[int]:
    resident: list[int] = []  # oldest first
    marked: set[int] = set()
    hand = 0  # its place in `resident`

    def use(page: int) -> None:
        nonlocal hand
        if page in resident:
            marked.add(page)
            return
        if len(resident) == capacity:
            while resident[hand % capacity] in marked:
                marked.remove(resident[hand % capacity])
                hand = (hand + 1) % capacity
            del resident[hand]
            if hand == len(resident):  # the newest page went
                hand = 0
        resident.append(page)

    return _replay(paths, resident, use)


def s3_fifo(paths: Paths, capacity: int) -> list[int]:
    resident: list[int] = []
    small: list[int] = []
    main: list[int] = []
    ghost: list[int] = []
    uses: dict[int, int] = {}
    room = capacity - max(1, capacity // 10)

    def evict() -> None:
        if len(main) > room or not small:
            page = main.pop(0)
            if uses[page] > 0:
                uses[page] -= 1
                main.append(page)
            else:
                resident.remove(page)
        else:
            page = small.pop(0)
            if uses[page] >= 2:
                uses[page] = 0
                main.append(page)
            else:
                resident.remove(page)
                ghost.append(page)
                del ghost[: max(0, len(ghost) - room)]

    def use(page: int) -> None:
        if page in resident:
            uses[page] = min(3, uses[page] + 1)
            return
        known = page in ghost
        if known:
            ghost.remove(page)
        while len(resident) == capacity:
            evict()
        uses[page] = 0
        resident.append(page)
        (main if known else small).append(page)

    return _replay(paths, resident, use)


PLAIN = {"fifo": fifo, "s3_fifo": s3_fifo, "sieve": sieve}
