"""Operations on SGLang's cache with a store below its host tier."""

from __future__ import annotations

from typing import Any

from invariants.fuzz.draws import Draws
from invariants.fuzz.hand import Hand
from invariants.fuzz.operations import OF_A_CACHE, Arguments, Operation
from invariants.fuzz.sequence import MOST_TOKENS, NEW_REQUEST, PROMPT, number, pack, unpack, word

EVERYTHING = 1 << 30


def _storing(hand: Hand) -> bool:
    peer: Any = hand.peer
    return bool(peer.storing)


def _draw_overtake(hand: Hand, draws: Draws) -> Arguments | None:
    args = OF_A_CACHE["revisit"].draw(hand, draws) if _storing(hand) else None
    if args is None:
        return None
    pages = max(1, len(unpack(args["tokens"])) // hand.page)
    first = draws.between(1, pages)
    second = draws.between(first, pages)
    cuts = {"first": first * hand.page, "second": second * hand.page}
    return {key: args[key] for key in ("request", "tokens", "space")} | cuts


def _overtake(hand: Hand, args: Arguments) -> None:
    """A request waits for an earlier prompt that the store alone has; meanwhile two requests for
    beginnings of it run to their end."""
    peer: Any = hand.peer
    if not peer.storing:
        return
    peer.cool()
    hand.collect()
    hand.now += 20
    hand.take_due()
    for pool in peer.can.evicts:
        peer.evict(pool, EVERYTHING)
    OF_A_CACHE["arrive"].play(hand, args)
    hand.collect()
    hand.now += 4
    hand.take_due()
    tokens = unpack(args["tokens"])
    for cut in (int(args["first"]), int(args["second"])):
        request = 1 + max(hand.used, default=-1)
        some = pack([*tokens[:cut], tokens[0]])
        OF_A_CACHE["arrive"].play(hand, {**args, "request": request, "tokens": some})
        OF_A_CACHE["admit"].play(hand, {"request": request, "chunk": cut + 1})
        OF_A_CACHE["finish"].play(hand, {"request": request, "keep": True})
        hand.collect()


def _draw_rarely(hand: Hand, draws: Draws) -> Arguments | None:
    return {} if _storing(hand) and draws.chance(30) else None


def _leave(hand: Hand) -> None:
    for request in list(hand.jobs):
        OF_A_CACHE["abort"].play(hand, {"request": request})


def _reset(hand: Hand, args: Arguments) -> None:
    """Empties the cache as soon as the scheduler may: threads of the store may still have work."""
    peer: Any = hand.peer
    if peer.storing:
        _leave(hand)
        done = peer.reset()
        hand.said(emptied=done)
        hand.counts["emptied at once"] += done


def _detach(hand: Hand, args: Arguments) -> None:
    """Takes the store away, or attaches it again, when nothing is under way."""
    peer: Any = hand.peer
    if peer.storing:
        _leave(hand)
        hand.settle()
        peer.turn_store()
        hand.counts["detached or attached"] += 1


_OVERTAKE = {
    "request": NEW_REQUEST,
    "tokens": PROMPT,
    "space": word(),
    "first": number(1, MOST_TOKENS),
    "second": number(1, MOST_TOKENS),
}
OPERATIONS = {
    "detach": Operation(1, {}, _draw_rarely, _detach),
    "overtake": Operation(9, _OVERTAKE, _draw_overtake, _overtake),
    "reset": Operation(2, {}, _draw_rarely, _reset),
}
