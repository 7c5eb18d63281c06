"""Random streams: each is a function of the root seed and its name only.

A counter-based generator: draw i of (seed, names...) is a BLAKE2b hash of these, so draws of one
stream do not change those of another. Integers only. For a single number per key, see
`sim.keyed_draw.draw`.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """A stream of integers, named by a seed and its purpose."""

    __slots__ = ("_count", "_key", "_left", "_pool")

    def __init__(self, seed: int, *names: object) -> None:
        self._key = "\x1f".join((str(seed), *map(str, names))).encode()
        self._count = 0
        self._pool = 0
        self._left = 0

    def below(self, limit: int) -> int:
        """Returns an integer from 0 to limit - 1. The bias of the 32-bit reduction is below 2**-16
        for limits below 2**16."""
        if not self._left:
            block = blake2b(self._key + b"\x1e" + str(self._count).encode(), digest_size=64)
            self._pool, self._left = int.from_bytes(block.digest(), "little"), 16
            self._count += 1
        word = self._pool & 0xFFFFFFFF
        self._pool >>= 32
        self._left -= 1
        return word % limit

    def between(self, least: int, most: int) -> int:
        return least + self.below(most - least + 1)

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def choice(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def weighted(self, options: Sequence[tuple[T, int]]) -> T:
        roll = self.below(sum(weight for _, weight in options))
        for option, weight in options:
            roll -= weight
            if roll < 0:
                return option
        raise AssertionError("weights sum to more than the roll")
