"""What is done to the cache beside requests: evictions, pins, time, and what is forbidden."""

from __future__ import annotations

from hicache.core.actions import Action
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    MatchWanted,
    PagesWanted,
    PinWanted,
    PrefillDone,
    TimePassed,
    UnpinWanted,
)
from hicache.core.types import Tier
from hicache.files import Value
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.ballast import FIRST, ONE_BY_ONE, leave, squeeze
from invariants.fuzz.hicache.faults.plain import RIVALS
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.ops.base import Arguments, Operation
from invariants.fuzz.hicache.ops.requests import NEAR, near
from invariants.fuzz.hicache.spell import cached, tokens_of
from invariants.fuzz.sequence import FLAG, OPTIONAL_FLAG, PROMPT, Schema, number, pack, unpack, word

EVICT_ARGS: Schema = {"tier": number(0, 1), "component": word(), "pages": number()}


def draw_evict(hand: Hand, draws: Draws) -> Arguments | None:
    tier = Tier.DEVICE if draws.chance(65) else Tier.HOST
    at = draws.below(len(hand.config.components))
    capacity = hand.core.view.pool(tier, at).capacity
    pages = capacity if draws.chance(8) else draws.below(4)
    pages = near(hand, draws) // hand.config.page_size if draws.chance(NEAR) else pages
    return {"tier": int(tier), "component": hand.config.components[at], "pages": pages}


def evict(hand: Hand, args: Arguments) -> None:
    """Evicts pages of one component from one tier."""
    tier, name = Tier(int(args["tier"])), str(args["component"])
    if name in hand.config.components:
        hand.feed(EvictWanted(tier, name, max(0, int(args["pages"]))))


def evict_each(hand: Hand, tier: Tier, pages: int) -> None:
    """Evicts so many pages of each component, the backbone last."""
    for name in reversed(hand.config.components):
        hand.feed(EvictWanted(tier, name, pages))


def take_all(hand: Hand, kind: type[Action]) -> None:
    """Takes the replies to the actions of this kind that are in flight now."""
    for one in [one for one in hand.pending if isinstance(one.action, kind)]:
        if one in hand.pending:
            hand.take(one)
            hand.finish()


MOST_CUTS = 6
ERODE_ARGS: Schema = {
    "cuts": Value(
        f"a list of 1 to {MOST_CUTS} cuts, each of them [tier 0 or 1, component, pages]",
        lambda value: (
            isinstance(value, list) and 0 < len(value) <= MOST_CUTS and all(map(_is_cut, value))
        ),
    )
}


def _is_cut(cut: object) -> bool:
    if not isinstance(cut, list) or len(cut) != 3:
        return False
    tier, name, pages = cut
    counts = all(type(one) is int for one in (tier, pages)) and 0 <= pages < 1 << 30
    return counts and tier in (0, 1) and isinstance(name, str)


def draw_erode(hand: Hand, draws: Draws) -> Arguments | None:
    names = hand.config.components
    if len(names) < 2:
        return None
    cuts = []
    for _ in range(draws.between(2, MOST_CUTS)):
        # prefer later components: evicting one also evicts those after it
        at = max(draws.below(len(names)), draws.below(len(names)))
        tier = draws.below(2) if hand.config.has_host else 0
        pages = hand.core.view.pool(Tier(tier), at).capacity if draws.chance(30) else 1
        cuts.append([tier, names[at], pages])
    return {"cuts": cuts}


def erode(hand: Hand, args: Arguments) -> None:
    """Evicts some pages of several components from both tiers in one entry. This leads to nodes
    with one component here, another there and a third nowhere. Three components have many such
    mixtures, and after single evictions the core repairs them too soon.
    """
    for tier, name, pages in args["cuts"]:
        if name in hand.config.components:
            hand.feed(EvictWanted(Tier(tier), name, pages))


HOARD_ARGS: Schema = {"take": FLAG, "leave": number(optional=True), "of": word(optional=True)}


def draw_hoard(hand: Hand, draws: Draws) -> Arguments | None:
    if _held(hand):
        return {"take": False}
    if draws.chance(50):
        return {"take": True}
    names, pools = hand.config.components, hand.config.device_pages
    of = [
        name
        for name, pages in zip(names, pools, strict=True)
        if name == names[0] or pages <= ONE_BY_ONE
    ]
    return {"take": True, "leave": draws.below(4), "of": draws.one(of)}


def hoard(hand: Hand, args: Arguments) -> None:
    """Extra requests take all available device pages, or all but some of one component, or release
    them.
    """
    if args["take"]:
        if "leave" in args:
            leave(hand, args.get("of", hand.config.components[0]), args["leave"])
        else:
            squeeze(hand, 100, False)
        return
    for held in _held(hand):
        hand.abort(hand.jobs[held])


def _held(hand: Hand) -> list[int]:
    return [number for number in hand.jobs if FIRST <= number < RIVALS]


FLUSH_ARGS: Schema = {"storage": OPTIONAL_FLAG}


def draw_flush(hand: Hand, draws: Draws) -> Arguments | None:
    if not draws.chance(50) and hand.pick("prefilling", "idle", "decoding"):
        return None
    return {"storage": draws.chance(30)} if hand.config.storage else {}


def flush(hand: Hand, args: Arguments) -> None:
    """Flushes the cache, and sometimes its storage; refused while a request or a pass runs."""
    hand.feed(Flushed(bool(args.get("storage", False))))


WAIT_ARGS: Schema = {"polls": number(1, 64)}


def draw_wait(hand: Hand, draws: Draws) -> Arguments | None:
    return {"polls": draws.between(1, 3)} if hand.pending else None


def wait(hand: Hand, args: Arguments) -> None:
    """Lets time pass and takes replies."""
    for _ in range(min(64, int(args["polls"]))):
        if not hand.wait():
            return


def draw_quiesce(hand: Hand, draws: Draws) -> Arguments | None:
    return {}


def quiesce(hand: Hand, args: Arguments) -> None:
    """Takes all pending replies; requests stay in their stages."""
    hand.settle()


def draw_age(hand: Hand, draws: Draws) -> Arguments | None:
    return {} if hand.config.ttl_periods else None


def age(hand: Hand, args: Arguments) -> None:
    """A period of time ends. Drawn where copies expire only."""
    if hand.config.ttl_periods:
        hand.feed(TimePassed())
    else:
        hand.refused(TimePassed())


MOST_PINS = 4
# Percent of the pins that are on host, if it has room for any: without a storage, and with one.
ON_HOST, ON_HOST_STORED = 40, 65
PIN_ARGS: Schema = {"pin": number(0, 99), "tokens": PROMPT, "space": word(), "tier": number(0, 1)}


def draw_pin(hand: Hand, draws: Draws) -> Arguments | None:
    share = ON_HOST_STORED if hand.config.storage else ON_HOST
    tier = Tier.HOST if hand.config.pin_host_pages and draws.chance(share) else Tier.DEVICE
    tokens, space = [draws.below(3)] * hand.config.page_size, ""
    running = hand.pick("decoding", "idle", "prefilling")
    known = cached(hand.core.view, hand.config.page_size, hand.pairs, tier)
    if running and draws.chance(25):
        job = draws.one(running)  # what it will commit, with tokens that it may generate
        tokens, space = [*job.tokens, *[draws.below(3)] * hand.config.page_size], job.namespace
    elif known and draws.chance(60):
        path, space = draws.one(known)
        tokens = tokens_of(path, hand.pairs)
    elif hand.past:
        tokens, space = draws.one(hand.past)
    pages = draws.between(1, max(1, min(8, len(tokens) // hand.config.page_size)))
    tokens = tokens[: pages * hand.config.page_size] or [0]
    return {
        "pin": draws.below(MOST_PINS),
        "tokens": pack(tokens),
        "space": space,
        "tier": int(tier),
    }


def pin(hand: Hand, args: Arguments) -> None:
    """A prefix is pinned: of what is cached, of what a running request will commit, of an earlier
    prompt, or of none. A number that is in use must be refused. Drawn where pins are allowed
    only.
    """
    tokens = unpack(args["tokens"])
    key = hand.key_of(tokens, str(args["space"]))
    event = PinWanted(int(args["pin"]), key, Tier(int(args["tier"])))
    if event.pin in hand.core.view.pins or not key.pages:
        hand.refused(event)
    else:
        hand.feed(event)


UNPIN_ARGS: Schema = {"pin": number(0, 99)}


def draw_unpin(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.core.view.pins and not draws.chance(5):
        return None
    return {"pin": draws.below(MOST_PINS)}


def unpin(hand: Hand, args: Arguments) -> None:
    """A pinned prefix is given up. A number that is not in use must be refused. Drawn where pins
    are allowed only.
    """
    event = UnpinWanted(int(args["pin"]))
    if event.pin in hand.core.view.pins:
        hand.feed(event)
    else:
        hand.refused(event)


NOBODY = 1 << 30
KINDS = (
    "reply to nothing", "abort of nobody", "admit nobody", "chunk of nobody", "finish of nobody",
    "growth of nobody", "match of nobody", "second arrival", "empty prompt", "evict of nothing",
    "chunk of no token", "finish of a waiting one",
)  # fmt: skip
MISUSE_ARGS: Schema = {"kind": word(*KINDS), "way": number()}


def draw_misuse(hand: Hand, draws: Draws) -> Arguments | None:
    return {"kind": draws.one(KINDS), "way": draws.below(3)}


def misuse(hand: Hand, args: Arguments) -> None:
    """A forbidden event. The core must refuse it and stay unchanged."""
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


OPS = {
    "evict": Operation(8, EVICT_ARGS, draw_evict, evict),
    "erode": Operation(3, ERODE_ARGS, draw_erode, erode),
    "hoard": Operation(2, HOARD_ARGS, draw_hoard, hoard),
    "flush": Operation(1, FLUSH_ARGS, draw_flush, flush),
    "wait": Operation(18, WAIT_ARGS, draw_wait, wait),
    "quiesce": Operation(1, {}, draw_quiesce, quiesce),
    "age": Operation(0, {}, draw_age, age),
    "pin": Operation(0, PIN_ARGS, draw_pin, pin),
    "unpin": Operation(0, UNPIN_ARGS, draw_unpin, unpin),
    "misuse": Operation(2, MISUSE_ARGS, draw_misuse, misuse),
}
