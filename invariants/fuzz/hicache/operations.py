"""The operations of a sequence: what is drawn for each, and what it does to one core. And plans:
several in a row that seldom come together when they are drawn one by one. An entry that does not
fit the state, because an earlier one was deleted, does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hicache.core import actions, events
from hicache.core.actions import Outcome, Refused
from hicache.core.components import residency
from hicache.core.config import UNBOUNDED
from hicache.core.errors import CallerError
from hicache.core.events import Event
from hicache.core.node import Node
from hicache.core.types import MOST_PRIORITY, Key, Tier
from hicache.files import FLAG, Only, Value, fit
from invariants.books.kinds import interval_of
from invariants.books.tickets import ACTION_OF
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.hand import EVERY, Hand
from invariants.fuzz.records import LEAST_MADE_UP, Job, Pending
from invariants.fuzz.sequence import (
    MOST,
    MOST_TOKENS,
    OPTIONAL_FLAG,
    PROMPT,
    REQUEST,
    Operation,
    Schema,
    number,
    of_request,
    pack,
    unpack,
    word,
)

Arguments = dict[str, Any]
MOST_JOBS, MOST_PINS = 6, 4
EVERY_PART = 7  # bits of components
LONGEST = 12  # pages of a prompt
RUNNING = ("decoding", "idle", "prefilling")
TOKEN = 8  # bytes of a token in a key
NOBODY = 1 << 30  # no request and no flight has this number


# -- prompts


def new_number(hand: Hand) -> int:
    """The next request number, below those of `hoard`."""
    return 1 + max((one for one in hand.used if one < LEAST_MADE_UP), default=-1)


def near(hand: Hand, draws: Draws, otherwise: int) -> int:
    """One time in five, a number of tokens at or next to a number of pages that decides something:
    what is free or at hand in a pool, its size, or what a component requires."""
    if not draws.chance(20):
        return otherwise
    view, page = hand.core.view, hand.config.page_size
    pools = (*view.pools(Tier.DEVICE), *view.pools(Tier.HOST))
    pages = [count for pool in pools for count in (pool.free, pool.available, pool.capacity)]
    pages += [one.window_pages for one in view.components if one.window_pages < UNBOUNDED]
    return max(1, page * draws.one(pages) + draws.one((-page, -1, 0, 0, 1, page)))


def on(tier: Tier) -> Callable[[Node], bool]:
    return lambda node: any(pages is not None for pages in node.pages[tier])


def draw_prefix(
    hand: Hand, draws: Draws, wanted: Callable[[Node], bool]
) -> tuple[list[int], str] | None:
    """The tokens and the namespace of a prefix in the tree whose last node is wanted."""
    stride, row = hand.key_of([]).stride, TOKEN * (1 + hand.pairs)
    paths: dict[int, tuple[bytes, str]] = {}
    known = []
    for node in hand.core.view.nodes():
        above = node.parent
        assert above is not None
        if above.parent is None:
            rows, space = b"", node.label[:-stride].rstrip(b"\0").decode()
        else:
            rows, space = paths[above.id]
        paths[node.id] = rows + node.key, space
        if wanted(node):
            known.append(paths[node.id])
    if not known:
        return None
    rows, space = draws.one(known)  # of a pair of tokens, the second one
    ends = range(row, len(rows) + 1, row)
    return [int.from_bytes(rows[end - TOKEN : end], "little") for end in ends], space


def draw_beginning(hand: Hand, draws: Draws) -> tuple[list[int], str]:
    """The tokens with which a prompt starts, and its namespace: those of a prefix that is cached on
    device now, of a request that runs with what it has generated, of an earlier prompt, or none.
    """
    source = draws.weighted((("cached", 50), ("running", 12), ("past", 20), ("none", 18)))
    running = hand.pick(*RUNNING)
    if source == "running" and running:
        job = draws.one(running)
        return job.tokens, job.namespace
    known = draw_prefix(hand, draws, on(Tier.DEVICE)) if source == "cached" else None
    if known is None and source != "none" and hand.past:
        known = draws.one(hand.past[-10:])
    return known or ([], draws.one(("", "", "", "lora")))


# -- requests


def draw_arrive(hand: Hand, draws: Draws) -> Arguments | None:
    if len(hand.jobs) >= MOST_JOBS:
        return None
    page = hand.config.page_size
    most = LONGEST * page
    if draws.chance(80):  # a prompt for which the pool is too small ends at once
        most = min(most, hand.config.device_pages[0] * page)
    size = min(draws.between(1, most), draws.between(1, most))
    words = [draws.below(3) for _ in range(LONGEST)]
    tokens = [words[at // page % LONGEST] for at in range(min(most, near(hand, draws, size)))]
    old, space = draw_beginning(hand, draws)
    if old:
        keep = min(len(old) if draws.chance(70) else draws.between(1, len(old)), most - 1)
        tokens = old[:keep] + tokens[: max(1, min(most - keep, 4 * page))]
        if draws.chance(6):
            space = "" if space else "lora"
    priority = draws.one((0, 0, 1, 2, -1))
    args = {"request": new_number(hand), "tokens": pack(tokens), "space": space}
    return args | {"whole": draws.chance(20)} | ({"priority": priority} if priority else {})


def arrive(hand: Hand, args: Arguments) -> None:
    """A request arrives. whole: whether all of its prompt may be reused, not all but a token."""
    if args["request"] not in hand.used:
        tokens = unpack(args["tokens"])
        job = Job(args["request"], tokens, args["space"], len(tokens))
        hand.remember(tokens, job.namespace)
        hand.arrive(job, len(tokens) - (not args["whole"]), args.get("priority", 0))


def draw_chunk(hand: Hand, draws: Draws, job: Job) -> Arguments:
    chunk = near(hand, draws, draws.between(1, LONGEST * hand.config.page_size))
    return {"chunk": min(MOST_TOKENS, chunk)}


def admit(hand: Hand, job: Job, args: Arguments) -> None:
    """If several passes of a request may be in flight and the chunk is odd, the next chunk begins
    at once, as a pipeline does not wait for the first pass."""
    outcomes = hand.feed(events.AdmitWanted(job.id, args["chunk"]))
    if is_too_large(outcomes):
        hand.abort(job)
    elif args["chunk"] % 2 and hand.config.passes > 1 and job.stage == "prefilling":
        prefill(hand, job, args)


def is_too_large(outcomes: list[Outcome]) -> bool:
    return any(isinstance(item, Refused) and item.reason == "too_large" for item in outcomes)


def prefill(hand: Hand, job: Job, args: Arguments) -> None:
    if job.may_go_on(hand.config.passes):
        hand.give_way(hand.feed(events.ContinueWanted(job.id, args["chunk"])))


def draw_grow(hand: Hand, draws: Draws, job: Job) -> Arguments:
    page = hand.config.page_size
    more = min(40 * page, near(hand, draws, draws.between(1, 2 * page + 1)))
    if draws.chance(25):  # to the end of a page
        more += -(len(job.tokens) + more) % page
    behind = draws.one((0, page, 2 * page, -1))
    return {"more": more, "behind": behind, "word": draws.below(3)}


def grow(hand: Hand, job: Job, args: Arguments) -> None:
    """Asks for pages, and generates as many tokens as were granted. behind: how many tokens less
    than it has computed the request reports; -1 if it reports none."""
    more, behind = args["more"], args["behind"]
    computed = max(0, job.committed - behind) if behind >= 0 else 0
    outcomes = hand.feed(events.PagesWanted(job.id, len(job.tokens) + more, computed))
    job.told = max(job.told, computed)
    if any(isinstance(item, actions.Granted) for item in outcomes):
        job.tokens += [args["word"]] * more
        before, job.committed = job.committed, len(job.tokens) - 1
        hand.decode(job, before)
    elif not is_too_large(outcomes):
        hand.give_way(outcomes)


def draw_ahead(hand: Hand, draws: Draws, job: Job) -> Arguments:
    return {"ahead": draws.between(1, interval_of(hand.config)) if draws.chance(25) else 0}


def finish(hand: Hand, job: Job, args: Arguments) -> None:
    """ahead: tokens of a last step that ran ahead of the committed ones, and is discarded."""
    job.committed = max(job.prompt, job.told, job.committed - args["ahead"])
    hand.feed(events.Finished(job.id, hand.key(job, job.committed), job.committed))
    del hand.jobs[job.id]
    hand.remember(job.tokens[: job.committed], job.namespace)


def limit(hand: Hand, job: Job, args: Arguments) -> None:
    """A waiting request has waited for its prefetch as long as it may."""
    hand.feed(events.PrefetchLimitReached(job.id))


# -- replies


def draw_wait(hand: Hand, draws: Draws) -> Arguments | None:
    return {"polls": draws.between(1, 3)} if hand.pending else None


def wait(hand: Hand, args: Arguments) -> None:
    """Lets time pass and takes replies."""
    for _ in range(args["polls"]):
        if not hand.wait():
            return


def draw_reply(hand: Hand, draws: Draws) -> Arguments | None:
    return reply_to(hand, draws.one(hand.pending)) if hand.pending else None


def reply_to(hand: Hand, one: Pending) -> Arguments:
    alike = [other for other in hand.pending if type(other.action) is type(one.action)]
    return {"to": type(one.action).__name__, "at": alike.index(one)}


def reply(hand: Hand, args: Arguments) -> None:
    """An action in flight is answered now. at: how many of its kind are older."""
    alike = [one for one in hand.pending if type(one.action).__name__ == args["to"]]
    for one in alike[args["at"] : args["at"] + 1]:
        if one in hand.answerable():
            if args.get("fails"):
                at = hand.pending.index(one)
                hand.pending[at] = one = one._replace(fault="fail")
            hand.take(one)


# -- the cache


def draw_evict(hand: Hand, draws: Draws) -> Arguments:
    """Prefers later components: evicting one also evicts those after it."""
    tier, names = Tier(int(draws.chance(40))), hand.config.components
    at = max(draws.below(len(names)), draws.below(len(names)))
    few = draws.one((0, 1, 1, 1, 2, 3, near(hand, draws, 1) // hand.config.page_size))
    pages = hand.core.view.pool(tier, at).capacity if draws.chance(12) else few
    return {"tier": int(tier), "component": names[at], "pages": pages}


def evict(hand: Hand, args: Arguments) -> None:
    """Evicts pages of one component from one tier."""
    if args["component"] in hand.config.components:
        hand.feed(events.EvictWanted(Tier(args["tier"]), args["component"], args["pages"]))


def hoarding(hand: Hand) -> list[int]:
    return [one for one in hand.jobs if LEAST_MADE_UP <= one < 2 * LEAST_MADE_UP]


def draw_hoard(hand: Hand, draws: Draws) -> Arguments:
    leave = {"leave": draws.below(4)} if draws.chance(50) else {}
    return {"take": not hoarding(hand), **leave}


def hoard(hand: Hand, args: Arguments) -> None:
    """Extra requests take all available device pages, or all but some, or release them."""
    if not args["take"]:
        for request in hoarding(hand):
            hand.abort(hand.jobs[request])
        return
    pool, before, leave = hand.core.view.pool(Tier.DEVICE), -1, args.get("leave", -1)
    for _ in range(20 if leave >= 0 else 1):
        there = pool.free + pool.evictable
        if leave >= 0 and not leave < there != before:
            return
        before = there
        take_pages(hand, max(1, there - max(0, leave)))


def take_pages(hand: Hand, pages: int) -> None:
    """Adds a decoding request with this many backbone pages, and what it needs of the others."""
    request = LEAST_MADE_UP + len(hand.used)
    tokens = [(1 << 40) + request] * (pages * hand.config.page_size)  # unlike any other prompt
    job = Job(request, tokens, "", len(tokens))
    hand.arrive(job, 0)
    hand.feed(events.AdmitWanted(request, len(tokens)))
    for _ in range(pages + 1):
        for one in [one for one in hand.pending if one.number in job.flights][:1]:
            hand.take(one)
        if job.stage != "idle":
            break
        hand.feed(events.ContinueWanted(request, len(tokens)))
    if job.stage != "decoding":
        hand.abort(job)


def draw_flush(hand: Hand, draws: Draws) -> Arguments | None:
    busy = hand.pick(*RUNNING) and not draws.chance(50)
    return None if busy else {"storage": hand.config.storage and draws.chance(50)}


def flush(hand: Hand, args: Arguments) -> None:
    """Flushes the cache, and sometimes its storage; refused while a request or a pass runs."""
    hand.feed(events.Flushed(args.get("storage", False)))


def allow(hand: Hand, event: Event, legal: bool) -> None:
    """Feeds an event; one that is not legal must be refused."""
    if legal:
        hand.feed(event)
    else:
        hand.refused(event)


def age(hand: Hand, args: Arguments) -> None:
    """A period of time ends. Drawn where copies expire only."""
    allow(hand, events.TimePassed(), bool(hand.config.ttl_periods))


def draw_pin(hand: Hand, draws: Draws) -> Arguments | None:
    on_host = bool(hand.config.pin_host_pages) and draws.chance(50)
    running, page, known = hand.pick(*RUNNING), hand.config.page_size, None
    if running and draws.chance(25):
        job = draws.one(running)  # what it will commit, with tokens that it may generate
        known = [*job.tokens, *[draws.below(3)] * page], job.namespace
    elif draws.chance(60):
        known = draw_prefix(hand, draws, on(Tier(int(on_host))))
    tokens, space = known or draw_beginning(hand, draws)
    tokens = tokens[: page * draws.between(1, max(1, min(8, len(tokens) // page)))] or [0]
    pin = draws.below(MOST_PINS)
    return {"pin": pin, "tokens": pack(tokens), "space": space, "tier": int(on_host)}


def pin(hand: Hand, args: Arguments) -> None:
    """A prefix is pinned: of what is cached, of what a running request will commit, of an earlier
    prompt, or of none. A number that is in use must be refused. Drawn where pins are allowed only.
    """
    key = hand.key_of(unpack(args["tokens"]), args["space"])
    legal = args["pin"] not in hand.core.view.pins and bool(key.pages)
    allow(hand, events.PinWanted(args["pin"], key, Tier(args["tier"])), legal)


def draw_unpin(hand: Hand, draws: Draws) -> Arguments | None:
    pins = [*hand.core.view.pins]
    return {"pin": draws.one([*pins, draws.below(MOST_PINS)])} if pins or draws.chance(5) else None


def unpin(hand: Hand, args: Arguments) -> None:
    """A number that is not in use must be refused."""
    allow(hand, events.UnpinWanted(args["pin"]), args["pin"] in hand.core.view.pins)


def draw_attach(hand: Hand, draws: Draws) -> Arguments | None:
    """A storage that is detached is soon attached again."""
    if not hand.config.has_host or (hand.core.view.attached and not draws.chance(20)):
        return None
    return {"again": draws.chance(40), "lost": draws.chance(20)}


def attach(hand: Hand, args: Arguments) -> None:
    """A storage is attached, or detached if one is. again: attaches a storage also where one is
    attached, as after it came back. lost: without what it had.
    """
    if hand.config.has_host and hand.can_store:
        if args.get("lost"):
            hand.shelf.lose()
        detaches = hand.core.view.attached and not args["again"]
        hand.feed(events.DetachWanted() if detaches else events.StorageAttached())


def draw_stock(hand: Hand, draws: Draws) -> Arguments:
    """It begins like what is known here; sometimes not all components of it are stored."""
    known = draw_prefix(hand, draws, lambda node: True) if draws.chance(60) else None
    tokens, space = known or draw_beginning(hand, draws)
    page, keep = hand.config.page_size, draws.between(1, len(tokens) or 1)
    tokens = tokens[: keep if draws.chance(40) else (LONGEST - 1) * page]
    tokens = tokens + [draws.below(3)] * (page * draws.between(0 if tokens else 1, 4))
    parts = draws.one((EVERY_PART, EVERY_PART, EVERY_PART, draws.between(1, EVERY_PART)))
    return {"tokens": pack(tokens), "space": space, "parts": parts}


def stock(hand: Hand, args: Arguments) -> None:
    """Another cache that shares the storage has stored these parts of a prompt: states at the ends
    of intervals alone."""
    tokens, page = unpack(args["tokens"]), hand.config.page_size
    digests = hand.key_of(tokens, args["space"]).page_digests()
    hand.remember(tokens, args["space"])
    for index, name in enumerate(hand.config.components):
        step = interval_of(hand.config) // page if residency(name) == "state" else 1
        for shelf in hand.shelves if args["parts"] >> index & 1 else ():
            shelf.values |= {(index, one) for one in digests[step - 1 :: step]}


# -- what is forbidden


FORBIDDEN = (
    *("arrive", "match", "admit", "admit for nothing", "prefill", "grow", "finish", "retract"),
    *("abort", "limit", "evict", "detach", "arrive wrongly", "finish wrongly", "grow wrongly"),
    *("prefill nothing", "retract wrongly", "reply to nothing", "reply of another kind"),
    *("repeated reply", "contradicting reply", "reply with wrong pages", "late failure"),
)


def forbidden(hand: Hand) -> Iterator[tuple[str, Event]]:
    """The events that must be refused now, with their kinds."""
    for job in (Job(NOBODY, [], "", 0, "gone"), *hand.jobs.values()):
        gone, waiting, passing = job.stage == "gone", job.stage == "waiting", bool(job.flights)
        size, full = len(job.tokens), not job.may_go_on(hand.config.passes)
        most, key = max(0, size - 1) // hand.config.page_size, hand.key(job, size)
        yield "arrive", events.Arrived(job.id, key, size, 0)
        yield "prefill nothing", events.ContinueWanted(job.id, 0)
        odd = Key(bytes(key.stride + TOKEN), key.stride + TOKEN, job.namespace)
        for new, prompt, pages, priority in (
            *((-1, key, 0, 0), (NOBODY, key, most + 2, 0), (NOBODY, key, -1, 0)),
            *((NOBODY, key, 0, MOST_PRIORITY + 1), (NOBODY, odd, 0, 0)),
        ):
            yield "arrive wrongly", events.Arrived(new, prompt, size, pages, priority)
        if job.stage in ("decoding", "idle"):
            done = job.committed if job.stage == "decoding" else job.computed
            alien = hand.key_of(job.tokens[:done], job.namespace + "other")
            yield "finish wrongly", events.Finished(job.id, alien, done)
            yield "finish wrongly", events.Finished(job.id, hand.key(job, done), NOBODY)
            yield "retract wrongly", events.Retracted(job.id, key, size, most + 2, done)
            yield "grow wrongly", events.PagesWanted(job.id, size + 1, NOBODY)
        if job.stage == "idle":
            yield "finish wrongly", events.Finished(job.id, key, size)
            yield "grow wrongly", events.PagesWanted(job.id, size + 1)
        if gone:
            yield "match", events.MatchWanted(job.id)
            yield "abort", events.Aborted(job.id)
        if waiting:
            yield "admit for nothing", events.AdmitWanted(job.id, 0)
        else:
            yield "admit", events.AdmitWanted(job.id, 1)
            yield "limit", events.PrefetchLimitReached(job.id)
        if gone or passing:
            yield "grow", events.PagesWanted(job.id, size + 1)
            yield "retract", events.Retracted(job.id, key, size, most, 0)
        if gone or (passing and full):
            yield "prefill", events.ContinueWanted(job.id, 1)
        if gone or passing or waiting:
            yield "finish", events.Finished(job.id, hand.key(job, 0), 0)
    yield "evict", events.EvictWanted(Tier.DEVICE, "nothing", 1)
    yield "evict", events.EvictWanted(Tier.HOST, hand.config.components[0], -1)
    if not hand.core.view.attached:
        yield "detach", events.DetachWanted()
    for reply, action in ACTION_OF.items():
        yield "reply to nothing", reply(NOBODY)
        for one in hand.pending:
            if not isinstance(one.action, action):
                yield "reply of another kind", reply(one.number)
            elif "pages" in reply._fields:
                yield from (("reply with wrong pages", reply(one.number, n)) for n in (NOBODY, -1))
            elif one.number in hand.landed:
                yield "late failure", reply(one.number, False)
    last = hand.last
    if isinstance(last, events.Reply):
        other = {"pages": int(not last[1])} if "pages" in last._fields else {"ok": not last[1]}
        yield "repeated reply", last
        yield "contradicting reply", last._replace(**other)


def draw_misuse(hand: Hand, draws: Draws) -> Arguments:
    there = {kind for kind, _ in forbidden(hand)}
    kinds = [kind for kind in FORBIDDEN if kind in there]
    kinds = kinds[-4:] if draws.chance(40) else kinds  # the last ones are seldom possible
    at = max(draws.below(len(kinds)), draws.below(len(kinds)))
    return {"kind": kinds[at], "way": draws.below(8)}


def misuse(hand: Hand, args: Arguments) -> None:
    """A forbidden event. The core must refuse it and stay unchanged. way: which of its kind."""
    alike = [event for kind, event in forbidden(hand) if kind == args["kind"]]
    if alike:
        hand.refused(alike[args["way"] % len(alike)])


# -- the table


def several(hand: Hand, args: Arguments) -> None:
    """Operations that nothing comes between."""
    for name, given in args["steps"]:
        OPERATIONS[name].play(hand, given)
        hand.finish()


def fits(step: Any) -> bool:
    """Whether it is [the name of an operation, arguments that fit it]."""
    try:
        name, args = step
        fit(args, Only(OPERATIONS[name].args), "")
    except (CallerError, KeyError, TypeError, ValueError):
        return False
    return isinstance(step, list) and name != "several"


STEPS = Value(
    "a list of [operation, its arguments]",
    lambda steps: isinstance(steps, list) and all(map(fits, steps)),
)
WAITING, DECODING = ("waiting",), ("decoding",)
PIN, TIER, CHUNK = number(0, 99), number(0, 1), number(1, MOST_TOKENS)
PROMPTED: Schema = {"tokens": PROMPT, "space": word()}
PRIORITY = number(-MOST_PRIORITY, MOST_PRIORITY, optional=True)
ARRIVE: Schema = {"request": REQUEST, **PROMPTED, "whole": FLAG, "priority": PRIORITY}
GROW: Schema = {"more": CHUNK, "behind": number(-1), "word": number()}
REPLY: Schema = {"to": word(*EVERY), "at": number(), "fails": OPTIONAL_FLAG}
EVICT: Schema = {"tier": TIER, "component": word(), "pages": number()}
OPERATIONS: dict[str, Operation] = {
    "abort": of_request(3, (*WAITING, *RUNNING), lambda hand, job, _: hand.abort(job)),
    "admit": of_request(22, WAITING, admit, draw_chunk, chunk=CHUNK),
    "age": Operation(0, {}, lambda hand, draws: {} if hand.config.ttl_periods else None, age),
    "arrive": Operation(12, ARRIVE, draw_arrive, arrive),
    "attach": Operation(0, {"again": FLAG, "lost": OPTIONAL_FLAG}, draw_attach, attach),
    "evict": Operation(8, EVICT, draw_evict, evict),
    "finish": of_request(10, DECODING, finish, draw_ahead, ahead=number()),
    "flush": Operation(1, {"storage": OPTIONAL_FLAG}, draw_flush, flush),
    "grow": of_request(14, DECODING, grow, draw_grow, **GROW),
    "hoard": Operation(2, {"take": FLAG, "leave": number(optional=True)}, draw_hoard, hoard),
    "limit": of_request(0, WAITING, limit),
    "match": of_request(3, WAITING, lambda hand, job, _: hand.feed(events.MatchWanted(job.id))),
    "misuse": Operation(3, {"kind": word(*FORBIDDEN), "way": number()}, draw_misuse, misuse),
    "pin": Operation(0, {**PROMPTED, "pin": PIN, "tier": TIER}, draw_pin, pin),
    "prefill": of_request(12, ("idle", "prefilling"), prefill, draw_chunk, chunk=CHUNK),
    "quiesce": Operation(1, {}, lambda hand, draws: {}, lambda hand, _: hand.settle()),
    "reply": Operation(1, REPLY, draw_reply, reply),
    "retract": of_request(3, ("decoding", "idle"), lambda hand, job, _: hand.retract(job)),
    # in stored sequences only
    "several": Operation(0, {"steps": STEPS}, lambda hand, draws: None, several),
    "stock": Operation(0, {**PROMPTED, "parts": number()}, draw_stock, stock),
    "unpin": Operation(0, {"pin": PIN}, draw_unpin, unpin),
    "wait": Operation(18, {"polls": number(1, 64)}, draw_wait, wait),
}


# -- plans

Plan = Iterator[tuple[str, Arguments]]


def visit(
    hand: Hand, draws: Draws, known: tuple[list[int], str], beyond: int, late: int = 0
) -> Plan:
    """One or more requests for a prompt that begins like a known one: they arrive, then they are
    admitted. Each further one shares one page less with the first. late: replies that are taken in
    between."""
    first, page = new_number(hand), hand.config.page_size
    longest = max(2, page * min(LONGEST, hand.config.device_pages[0]))
    more = [draws.below(3)] * draws.between(1, beyond)
    tokens = [*known[0][: longest - 1], *more][:longest]
    requests = range(first, first + draws.one((1, 1, 1, 2, 2, 3)))
    for request in requests:
        keep = max(1, len(tokens) - page * (request - first))
        args = {"request": request, "tokens": pack(tokens[:keep]), "space": known[1]}
        priority = draws.one((0, 0, 0, 1, 2, -1))
        yield "arrive", args | {"whole": draws.chance(10), "priority": priority}
    for _ in range(draws.below(5) if late else 0):
        step = draws.one(("other", "lookup", "lookup", "fetch", "device", "host", "attach"))
        if step == "other" and (other := draw_arrive(hand, draws)):
            yield "arrive", other
        elif step in ("lookup", "fetch"):
            kind = actions.Lookup if step == "lookup" else actions.Fetch
            yield from answer(hand, under_way(hand, kind)[:1], draws.chance(15))
        elif step in ("device", "host"):
            pages = draws.one((1, 2, MOST))
            yield from (one for one in empty(hand, int(step == "host"), pages) if draws.chance(70))
        elif step == "attach" and draws.chance(50):
            yield "attach", {"again": draws.chance(70)}
            yield from answer(hand, under_way(hand, actions.Fetch)[:1], draws.chance(50))
    yield from polls(late)
    most = draws.one((page, longest))
    for request in requests:
        yield "admit", {"request": request, "chunk": draws.between(1, most)}


def polls(count: int) -> Plan:
    if count:
        yield "wait", {"polls": count}


def release(hand: Hand, most: int) -> Plan:
    """Lets requests end that have no pass in flight, which frees their pages."""
    for job in hand.pick("decoding", "idle")[:most]:
        ahead = {"ahead": 0} if job.stage == "decoding" else {}
        yield "finish" if ahead else "retract", {"request": job.id, **ahead}


def empty(hand: Hand, tier: int, pages: int = MOST) -> Plan:
    """Evicts so many pages of each component, the backbone last."""
    for name in reversed(hand.config.components):
        yield "evict", {"tier": tier, "component": name, "pages": pages}


def answer(hand: Hand, some: list[Pending], fails: bool = False) -> Plan:
    for one in some:
        if one in hand.pending:
            yield "reply", {**reply_to(hand, one), "fails": fails}


def under_way(hand: Hand, kind: type[Any]) -> list[Pending]:
    return [one for one in hand.pending if isinstance(one.action, kind)]


def draw_known(hand: Hand, draws: Draws, stored: bool) -> tuple[list[int], str] | None:
    """A prompt of which something is on host and not on device, or which storage can bring back;
    sometimes another one, which may be there later."""
    known = None
    if stored:
        firsts = [(one, hand.key_of(*one).page_digests()[:1]) for one in hand.past]
        found = [one for one, first in firsts if first and (0, *first) in hand.shelf.values]
        known = draws.one(found) if found else None
    elif draws.chance(80):
        known = draw_prefix(hand, draws, lambda node: node.pages[Tier.DEVICE][0] is None)
    if known is None and not stored:
        known = draw_prefix(hand, draws, on(Tier.HOST))
    if known is None and hand.past and draws.chance(40):
        known = draws.one(hand.past[-10:])
    return known


def revisit(hand: Hand, draws: Draws, stored: bool = False) -> Plan:
    """Requests for a prefix that is cached on host, which leads to loads, or that is stored.
    Requests end and replies are taken, so that pages are written back and stored, and device, or
    device and host, are emptied by evictions or a flush."""
    if stored and draws.chance(60):
        yield "stock", draw_stock(hand, draws)
    known = draw_known(hand, draws, stored) if len(hand.jobs) < MOST_JOBS else None
    if known is None or not hand.config.has_host:
        return
    if stored and not hand.core.view.attached and draws.chance(80):
        yield "attach", {"again": True}
    if draws.chance(70):
        yield from polls(2)
        yield from release(hand, MOST_JOBS)
    how = (("both", 8), ("host", 3), ("tail", 6), ("flush", 2), ("", 3))
    chosen = draws.weighted(how if stored else (("device", 3), ("", 5)))
    if chosen == "flush":
        yield "flush", {"storage": draws.chance(40)}
    if chosen in ("both", "tail", "device"):
        every = stored or draws.chance(60)
        yield from (one for one in empty(hand, 0) if every or draws.chance(50))
        yield from polls(draws.one((0, 1, 2, 5)))  # for what is written back and stored
    if chosen == "tail":
        yield from [*empty(hand, 1, draws.one((1, 2, 4)))][-draws.one((1, 3)) :]
    if chosen in ("both", "host"):
        yield from empty(hand, 0)
        yield from empty(hand, 1)
    yield from polls(draws.one((0, 1, 4)))
    late = draws.one((0, 2, 3, 6, 6)) if stored else 0
    yield from visit(hand, draws, known, 1 + hand.config.page_size * draws.below(3), late)


def begin(hand: Hand, tokens: list[int], space: str, now: bool = True, late: bool = False) -> Plan:
    """A request for this prompt arrives. now: it is admitted as soon as what is stored has come, or
    with `late` before."""
    request = new_number(hand)
    yield "arrive", {"request": request, "tokens": pack(tokens), "space": space, "whole": False}
    yield from answer(hand, under_way(hand, actions.Lookup))
    if late:
        yield "limit", {"request": request}
    if now:
        yield from answer(hand, [] if late else under_way(hand, actions.Fetch))
        yield "admit", {"request": request, "chunk": len(tokens)}


def deepen(hand: Hand, draws: Draws) -> Plan:
    """Turns of a conversation: each prompt is longer than the one before, and what it computed goes
    to host and to storage in between. All of it may be pinned before it is there."""
    known, space = draw_beginning(hand, draws)
    page, on_host = hand.config.page_size, bool(hand.config.pin_host_pages)
    most = page * min(LONGEST, hand.config.device_pages[0])
    tokens = (known + [draws.below(3)] * most)[:most]
    if hand.config.pin_pages or on_host:
        pin, tier = draws.below(MOST_PINS), int(on_host and draws.chance(70))
        bound = (hand.config.pin_host_pages if tier else hand.config.pin_pages or (1,))[0]
        part = pack(tokens[: page * draws.between(1, bound or 1)])
        yield "pin", {"pin": pin, "tokens": part, "space": space, "tier": tier}
    for end in sorted({draws.between(1, most) for _ in range(draws.between(2, 4))}):
        if len(hand.jobs) < MOST_JOBS:
            yield from begin(hand, tokens[:end], space)
        yield from answer(hand, under_way(hand, actions.Prefill))
        yield from release(hand, draws.one((1, MOST_JOBS)))
        if draws.chance(60):
            yield from empty(hand, 0, draws.one((1, 2, MOST)))
        if draws.chance(80):
            yield from answer(hand, under_way(hand, actions.Backup), draws.chance(10))
        if draws.chance(20):
            yield from empty(hand, 1, draws.one((1, 2, 4)))
        elif hand.config.ttl_periods and draws.chance(40):
            yield from age_all(hand, draws)
        if draws.chance(50):
            yield from answer(hand, under_way(hand, actions.Store))


def race(hand: Hand, draws: Draws) -> Plan:
    """Two requests compute one prompt at once, and another one waits for it to come from storage.
    What the first one computed goes to host, and a further one loads it, before the second one has
    ended; then the replies come in any order."""
    for job in [*hand.jobs.values()] if len(hand.jobs) > MOST_JOBS - 4 else ():
        yield "abort", {"request": job.id}
    page, (known, space) = hand.config.page_size, draw_beginning(hand, draws)
    pages = draws.between(1, max(1, min(LONGEST, hand.config.device_pages[0] // 3)))
    tokens = (known if draws.chance(30) else []) + [3 + new_number(hand)] * page * pages
    yield from begin(hand, tokens, space)
    first = under_way(hand, actions.Prefill)[-1:]
    yield from begin(hand, tokens + [0] * draws.below(2 * page), space)
    if hand.core.view.attached and draws.chance(70):
        more = [*tokens, *[0] * page * draws.between(0, 4), 1]
        yield "stock", {"tokens": pack(more), "space": space, "parts": EVERY_PART}
        yield from begin(hand, more, space, now=False)
    yield from answer(hand, first)
    yield from release(hand, MOST_JOBS)
    yield from empty(hand, 0, draws.one((1, 2, MOST, MOST)))
    yield from answer(hand, under_way(hand, actions.Backup))
    yield from begin(hand, [*tokens, 1], space, late=True)
    while hand.pending and draws.chance(85):
        yield from answer(hand, [draws.one(hand.pending)], draws.chance(8))
        if draws.chance(20):
            yield from empty(hand, draws.below(2), draws.one((1, 2, MOST)))
        elif draws.chance(20):
            yield "misuse", draw_misuse(hand, draws)
        elif draws.chance(8):
            yield from release(hand, MOST_JOBS)
            yield "flush", {}


def branch(hand: Hand, draws: Draws) -> Plan:
    """Prompts of two families: what stands above is used later than leaves elsewhere."""
    page, first = hand.config.page_size, 3 + new_number(hand)
    yield from release(hand, MOST_JOBS)
    for _ in range(draws.between(4, 8)):
        leaf = [draws.below(2)] * page * draws.below(3)
        yield from begin(hand, [first + draws.below(2)] * page + leaf + [2], "")
        yield from answer(hand, under_way(hand, actions.Prefill))
        yield from release(hand, MOST_JOBS)
    yield from empty(hand, 0, draws.between(2, 4))


def age_all(hand: Hand, draws: Draws) -> Plan:
    """As many periods end in a row as copies live, or one more."""
    for _ in range(hand.config.ttl_periods + draws.below(2)):
        yield "age", {}


def crumble(hand: Hand, draws: Draws) -> Plan:
    """A branch is written back from its leaves up, while what is stored of it is not answered; the
    last copy may fail. What stands on the node that was not copied goes with it, or expires."""
    if draws.chance(80):
        yield from answer(hand, under_way(hand, actions.Prefill))
        yield from release(hand, MOST_JOBS)
    pages = draws.one((1, 1, 2, 4))
    for fails in (*[False] * draws.between(1, 3), draws.chance(80)):
        yield from empty(hand, 0, pages)
        yield from answer(hand, under_way(hand, actions.Backup), fails)
    if hand.config.ttl_periods and draws.chance(70):
        for _ in range(2):
            yield from age_all(hand, draws)
            yield from answer(hand, under_way(hand, actions.Store))
    else:
        yield from empty(hand, draws.below(2), draws.one((1, 2, MOST)))


def rounds(hand: Hand, draws: Draws, job: Job) -> Plan:
    """The same request fails, is retracted, and comes again with its prefix on host alone."""
    for _ in range(draws.between(2, 4)):
        step = "prefill" if job.stage == "idle" else "admit"
        yield step, {"request": job.id, **draw_chunk(hand, draws, job)}
        for one in [*hand.pending]:
            if getattr(one.action, "request", -1) == job.id:
                yield from answer(hand, [one], draws.chance(25))
        if job.stage in ("decoding", "idle") and draws.chance(75):
            yield "retract", {"request": job.id}
        if draws.chance(60):
            yield from empty(hand, 0)
            yield from answer(hand, under_way(hand, actions.Backup))


def stride(hand: Hand, draws: Draws) -> Plan:
    """A request that lacks slots generates past ends of intervals without a report. Others end or
    states are evicted, so that slots are refilled late; it ends between two of them."""
    if len(hand.jobs) < MOST_JOBS and draws.chance(60):
        yield from visit(hand, draws, draw_beginning(hand, draws), 2 * hand.config.page_size)
        yield from answer(hand, [*hand.pending])
    for job in hand.pick("decoding")[-1:]:
        for _ in range(draws.between(2, 4)):
            more = draws.one((0, 0, 1, 2)) * interval_of(hand.config) + draws.between(1, 2)
            yield "grow", {"request": job.id, "more": more, "behind": -1, "word": 0}
            if draws.chance(40) and len(hand.jobs) > 1:
                yield from release(hand, 1)
            yield "evict", draw_evict(hand, draws) | {"tier": 0}
        yield "finish", {"request": job.id, "ahead": 0}


_STEPS = (
    *(("reply", 24), ("end", 14), ("grow", 8), ("chunk", 5), ("release", 4), ("admit", 4)),
    *(("device", 8), ("host", 8), ("rival", 6), ("misuse", 5), ("hoard", 3), ("flush", 2)),
    ("rounds", 5),
)
_STEPS_OF_STORAGE = (("store", 10), ("attach", 3), ("wipe", 4), ("limit", 2))


def meddle(hand: Hand, draws: Draws) -> Plan:
    """Things happen to a request at chosen points between the replies to its actions: it grows or
    ends, a reply fails, pages are evicted, others ask for the same. It comes as in `revisit`, or is
    one that has an action in flight.
    """
    request = new_number(hand)
    if len(hand.jobs) < MOST_JOBS and draws.chance(60):
        yield from revisit(hand, draws)
        if request not in hand.used and not (hand.config.has_host and draws.chance(60)):
            beginning = draw_beginning(hand, draws)
            yield from visit(hand, draws, beginning, 4 * hand.config.page_size)
    if request not in hand.used and hand.pending:
        request = getattr(draws.one(hand.pending).action, "request", -1)
    steps = _STEPS + (_STEPS_OF_STORAGE if hand.core.view.attached else ())
    steps += (("crumble", 16),) if hand.core.view.writes.on_evict else ()
    steps += (("age", 8),) if hand.config.ttl_periods else ()
    for _ in range(draws.between(2, 7)):
        yield from meddle_once(hand, draws, draws.weighted(steps), request)


def meddle_once(hand: Hand, draws: Draws, step: str, request: int) -> Plan:
    page, job = hand.config.page_size, hand.jobs.get(request)
    job = job or next(iter(hand.jobs.values()), None)
    if step == "reply":
        mine = [one for one in hand.pending if getattr(one.action, "request", request) == request]
        yield from answer(hand, [draws.one(mine)] if mine else [], draws.chance(15))
    elif step == "store":
        yield from answer(hand, under_way(hand, actions.Backup))
        yield from answer(hand, under_way(hand, actions.Store), draws.chance(80))
    elif step in ("device", "host"):
        yield from empty(hand, int(step == "host"), draws.one((1, 2, 4, MOST)))
    elif step == "release":
        yield from release(hand, 1)
    elif step in ("flush", "wipe"):
        if draws.chance(60):
            yield from answer(hand, under_way(hand, actions.Prefill))
            yield from release(hand, MOST_JOBS)
        yield "flush", {"storage": step == "wipe"}
    elif step == "attach":
        yield "attach", {"again": draws.chance(60), "lost": draws.chance(50)}
    elif step in ("age", "crumble"):
        yield from (age_all if step == "age" else crumble)(hand, draws)
    elif step in ("hoard", "misuse"):
        yield step, (draw_hoard if step == "hoard" else draw_misuse)(hand, draws)
    elif job is None:
        return
    elif step == "rounds":
        yield from rounds(hand, draws, job)
    elif step == "rival":
        yield from visit(hand, draws, (job.tokens[: job.prompt], job.namespace), 1)
    elif step == "grow":
        yield "grow", {"request": job.id, "more": page, "behind": 0, "word": 0}
    elif step in ("end", "limit"):
        ends = {"decoding": ("abort", "finish", "finish", "retract"), "idle": ("abort", "retract")}
        name = draws.one(ends.get(job.stage, ("abort",))) if step == "end" else step
        yield name, {"request": job.id, **({"ahead": 0} if name == "finish" else {})}
    else:
        chunk = draws.one((draws.between(1, page), page * LONGEST))
        yield "prefill" if step == "chunk" else "admit", {"request": job.id, "chunk": chunk}


# By name, with how often it is drawn; 0: with a storage, or with states, only.
PLANS: dict[str, tuple[int, Callable[[Hand, Draws], Plan]]] = {
    "branch": (3, branch),
    "deepen": (6, deepen),
    "meddle": (34, meddle),
    "race": (6, race),
    "revisit": (14, revisit),
    "stride": (0, stride),
    "warm": (0, lambda hand, draws: revisit(hand, draws, stored=True)),
}
