"""What is asked of vLLM's scheduler beside requests."""

from __future__ import annotations

from typing import Any

from invariants.fuzz.draws import Draws
from invariants.fuzz.hand import Hand
from invariants.fuzz.operations import (
    MOST_JOBS,
    OF_A_SERVER,
    WORDS,
    Arguments,
    Operation,
)
from invariants.fuzz.sequence import number, pack


def _draw_empty(hand: Hand, draws: Draws) -> Arguments | None:
    peer: Any = hand.peer
    runs = (hand.jobs or hand.pending) and not (hand.config.get("midway") or peer.presses)
    return None if runs or peer.emptied == peer.steps else {}


def _empty(hand: Hand, args: Arguments) -> None:
    """The host's cache is emptied, as after new weights. It is drawn once between two steps, and
    only while nothing runs unless "midway" is fixed, or it is of what nothing uses."""
    peer: Any = hand.peer
    peer.empty_host()


def _draw_renew(hand: Hand, draws: Draws) -> Arguments | None:
    peer: Any = hand.peer
    rare = hand.config.get("store") and peer.steps % 32 != 31  # the store is not used after it
    plays = peer.presses and hand.jobs and not rare
    return {"paused": draws.between(0, 1)} if plays else None


def _renew(hand: Hand, args: Arguments) -> None:
    """What runs is preempted and all caches are emptied, as for new weights."""
    peer: Any = hand.peer
    if peer.presses:
        peer.renew(bool(args["paused"]))


def _draw_revisit(hand: Hand, draws: Draws) -> Arguments | None:
    peer: Any = hand.peer
    if not peer.presses or not hand.past or len(hand.jobs) >= MOST_JOBS:
        return None
    tokens, space = draws.one(hand.past[-8:])
    return {
        "request": 1 + max(hand.used, default=-1),
        "tokens": pack([*tokens, *[draws.between(1, WORDS)] * draws.between(1, hand.page + 1)]),
        "space": space,
        "more": draws.between(1, 2 * hand.page + 1),
    }


def _revisit(hand: Hand, args: Arguments) -> None:
    """A request for an earlier prompt, of which the device has lost what it can lose."""
    peer: Any = hand.peer
    if peer.presses:
        peer.press()
    OF_A_SERVER["arrive"].play(hand, args)


OF_A_SCHEDULER = {
    "empty": Operation(9, {}, _draw_empty, _empty),
    "renew": Operation(3, {"paused": number(0, 1)}, _draw_renew, _renew),
    "revisit": Operation(16, OF_A_SERVER["arrive"].args, _draw_revisit, _revisit),
}
