"""The process restarts: every request ends, the tree and both tiers are lost, and storage stays.

Drawn with models only. A storage is attached again, as a new process does.
"""

from __future__ import annotations

from hicache.core.events import Flushed, StorageAttached

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema
from .base import Arguments

WEIGHT = 0
ARGS: Schema = {}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    return {} if hand.core.view.attached else None


def play(hand: Hand, args: Arguments) -> None:
    for job in list(hand.jobs.values()):
        hand.abort(job)
    hand.settle()
    hand.feed(Flushed())
    if hand.config.has_host and hand.can_store:
        hand.feed(StorageAttached())
