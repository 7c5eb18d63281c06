"""A forbidden event. The core must refuse it and stay unchanged."""

from __future__ import annotations

from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    Event,
    EvictWanted,
    Finished,
    LoadDone,
    MatchWanted,
    PagesWanted,
    PrefillDone,
)
from hicache.core.types import Tier

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema, number, word
from .base import Arguments

WEIGHT = 2
NOBODY = 1 << 30
KINDS = (
    "reply to nothing", "abort of nobody", "admit nobody", "chunk of nobody", "finish of nobody",
    "growth of nobody", "match of nobody", "second arrival", "empty prompt", "evict of nothing",
    "chunk of no token", "finish of a waiting one",
)  # fmt: skip
ARGS: Schema = {"kind": word(*KINDS), "way": number()}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    return {"kind": draws.one(KINDS), "way": draws.below(3)}


def play(hand: Hand, args: Arguments) -> None:
    event = _event(hand, str(args["kind"]), int(args["way"]))
    if event is not None:
        hand.refused(event)


def _event(hand: Hand, kind: str, way: int) -> Event | None:
    key = hand.key_of([])
    live = next(iter(hand.jobs.values()), None)
    waiting = next(iter(hand.pick("waiting")), None)
    simple: dict[str, Event] = {
        "reply to nothing": (LoadDone, BackupDone, PrefillDone)[way % 3](NOBODY),
        "abort of nobody": Aborted(NOBODY),
        "admit nobody": AdmitWanted(NOBODY, 1),
        "chunk of nobody": ContinueWanted(NOBODY, 1),
        "finish of nobody": Finished(NOBODY, key, 0),
        "growth of nobody": PagesWanted(NOBODY, 1),
        "match of nobody": MatchWanted(NOBODY),
        "empty prompt": Arrived(NOBODY, key, 0, 0),
        "evict of nothing": EvictWanted(Tier.DEVICE, "nothing", 1),
    }
    if kind in simple:
        return simple[kind]
    if kind == "second arrival" and live is not None:
        return Arrived(live.id, hand.key(live, live.prompt), live.prompt, 0)
    if kind == "chunk of no token" and waiting is not None:
        return AdmitWanted(waiting.id, 0)
    if kind == "finish of a waiting one" and waiting is not None:
        return Finished(waiting.id, key, 0)
    return None
