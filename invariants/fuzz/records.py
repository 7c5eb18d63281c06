"""The records of a run: a request as its engine knows it, and a reply under way. No methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hicache.core.actions import Action


@dataclass(slots=True)
class Job:
    """One request as its engine knows it. stage: waiting, prefilling, idle or decoding. asked: the
    length of its first prompt, 0 until that has been computed once."""

    id: int
    tokens: list[int]
    namespace: str
    prompt: int
    stage: str = "waiting"
    computed: int = 0
    committed: int = 0
    told: int = 0  # computed tokens that the core was told of
    flight: int = 0
    loads: tuple[int, ...] = ()
    ids: list[int] = field(default_factory=list)
    asked: int = 0


class Pending(NamedTuple):
    """A reply under way."""

    due: int
    tie: int
    number: int
    action: Action
    fault: str
