"""A forbidden event of the third tier. The core must refuse it and stay unchanged. Drawn with a
storage only.
"""

from __future__ import annotations

from hicache.core.actions import Fetch, Lookup, Store
from hicache.core.events import (
    DeleteDone,
    DetachWanted,
    Event,
    FetchDone,
    LookupDone,
    PrefetchLimitReached,
    StorageAttached,
    StoreDone,
)

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema, number, word
from .base import Arguments

WEIGHT = 0
NOBODY = 1 << 30
KINDS = (
    "reply to nothing", "limit of nobody", "limit of a running one", "detach twice",
    "too many pages", "fewer than no pages", "attach without host",
)  # fmt: skip
ARGS: Schema = {"kind": word(*KINDS), "way": number()}
_REPLIES = ((Lookup, LookupDone), (Fetch, FetchDone), (Store, StoreDone))


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    return {"kind": draws.one(KINDS), "way": draws.below(4)}


def play(hand: Hand, args: Arguments) -> None:
    event = _event(hand, str(args["kind"]), int(args["way"]))
    if event is not None:
        hand.refused(event)


def _event(hand: Hand, kind: str, way: int) -> Event | None:
    running = next(iter(hand.pick("prefilling", "idle", "decoding")), None)
    if kind == "reply to nothing":
        return (LookupDone, FetchDone, StoreDone, DeleteDone)[way % 4](NOBODY)
    if kind == "limit of nobody":
        return PrefetchLimitReached(NOBODY)
    if kind == "limit of a running one" and running is not None:
        return PrefetchLimitReached(running.id)
    if kind == "detach twice" and not hand.core.view.attached:
        return DetachWanted()
    if kind == "attach without host" and not hand.config.has_host:
        return StorageAttached()
    for action, reply in _REPLIES:
        for one in hand.pending:
            if isinstance(one.action, action) and kind == "too many pages":
                return reply(one.number, NOBODY)
            if isinstance(one.action, action) and kind == "fewer than no pages":
                return reply(one.number, -1)
    return None
