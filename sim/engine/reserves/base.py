"""The interface of a reserve, and its lookup.

A reserve refuses an admission that the core could grant, for the sake of the tokens that running
requests will still generate. A module of this folder defines `reserve(permille)`. It counts pages
of the first component; pages that requests share count for each of them. Does not take pages (see
the core), and is not asked when nothing runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from hicache import registry

from ...engine_profiles.base import RESERVES
from ..sequence import Sequence


class Held(Protocol):
    """What a reserve may ask of the running requests. promised: pages that all admitted requests
    have when they end."""

    @property
    def page_size(self) -> int: ...
    @property
    def promised(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def available(self) -> int: ...
    @property
    def admitted(self) -> Mapping[int, Sequence]: ...

    def left(self, sequence: Sequence) -> int:
        """Tokens that a request will still generate."""


class Reserve(Protocol):
    """settled: its answer stays the same while requests only decode."""

    settled: bool

    def admits(self, sequence: Sequence, held: Held) -> bool:
        """Whether a waiting request may be admitted beside those that run."""

    def idle(self) -> None:
        """Nothing runs."""

    def decoded(self, steps: int) -> None:
        """So many decode steps are done."""

    def retracted(self, held: Held) -> None:
        """A request was retracted; these are left."""


def make(name: str, permille: int) -> Reserve:
    """A new reserve with that name. Raises CallerError for an unknown name."""
    found: Reserve = registry.load(RESERVES, name).reserve(permille)
    return found
