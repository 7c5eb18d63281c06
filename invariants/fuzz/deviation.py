"""The error of a hand whose passes are those of a real model."""

from __future__ import annotations

from hicache.core.errors import About
from invariants.base import WRONG_BYTES


class Deviation(AssertionError):
    """A pass gave other results than it must. kind: equal for deviations of the same sort."""

    exit_code = WRONG_BYTES

    def __init__(self, kind: str, text: str, *about: About) -> None:
        super().__init__(text)
        self.kind = kind
        self.about = about
