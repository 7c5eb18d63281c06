"""Heavy-tailed delays: most replies are quick, a few take a thousand times as long."""

from __future__ import annotations

from collections.abc import Sequence

from .base import Schedule


class Heavy(Schedule):
    def later(self, delay: int) -> int:
        return 1 << delay * 7 % 12


def make(numbers: Sequence[int]) -> Schedule:
    return Heavy()
