"""The operations of a sequence: what is drawn for each, and what it does to one core. And plans:
several in a row that seldom come together when they are drawn one by one. An entry that does not
fit the state, because an earlier one was deleted, does nothing."""

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
from hicache.files import FLAG, Only, Spare, Value, fit
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.player import Player
from invariants.fuzz.schedules import ACTIONS, LEAST_MADE_UP, Job, Pending
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
from invariants.shadow.kinds import interval_of
from invariants.shadow.transfers import ACTION_OF

Arguments = dict[str, Any]
MOST_JOBS, MOST_PINS = 6, 4
EVERY_PART = 7  # bits of components
LONGEST = 12  # pages of a prompt
RUNNING = ("decoding", "idle", "prefilling")
TOKEN = 8  # bytes of a token in a key
NOBODY = 1 << 30  # no request and no transfer has this number


# -- prompts


def new_number(player: Player) -> int:
    """The next request number, below those of `hoard`."""
    return 1 + max((number for number in player.used if number < LEAST_MADE_UP), default=-1)


def near(player: Player, draws: Draws, otherwise: int) -> int:
    """One time in five, a number of tokens at or next to a number of pages that decides something:
    what is free or at hand in a pool, its size, or what a component requires."""
    if not draws.chance(20):
        return otherwise
    view, page = player.core.view, player.config.page_size
    pools = (*view.pools(Tier.DEVICE), *view.pools(Tier.HOST))
    pages = [count for pool in pools for count in (pool.free, pool.available, pool.capacity)]
    windows = (component.window_pages for component in view.components)
    pages += [window for window in windows if window < UNBOUNDED]
    return max(1, page * draws.choice(pages) + draws.choice((-page, -1, 0, 0, 1, page)))


def on(tier: Tier) -> Callable[[Node], bool]:
    return lambda node: any(pages is not None for pages in node.pages[tier])


def draw_prefix(
    player: Player, draws: Draws, wanted: Callable[[Node], bool]
) -> tuple[list[int], str] | None:
    """The tokens and the namespace of a prefix in the tree whose last node is wanted."""
    known = [node for node in player.core.view.nodes() if wanted(node)]
    if not known:
        return None
    node = draws.choice(known)
    rows, stride = bytes(node.key), player.key_of([]).stride
    while (above := node.parent) is not None and above.parent is not None:
        node, rows = above, bytes(above.key) + rows
    space = node.label[:-stride].rstrip(b"\0").decode()
    row = TOKEN * (1 + player.pairs)  # of a pair of tokens, the second one
    ends = range(row, len(rows) + 1, row)
    return [int.from_bytes(rows[end - TOKEN : end], "little") for end in ends], space


def draw_beginning(player: Player, draws: Draws) -> tuple[list[int], str]:
    """The tokens with which a prompt starts, and its namespace: those of a prefix that is cached on
    device now, of a request that runs with what it has generated, of an earlier prompt, or none."""
    source = draws.weighted((("cached", 50), ("running", 12), ("past", 20), ("none", 18)))
    running = player.pick(*RUNNING)
    if source == "running" and running:
        job = draws.choice(running)
        return job.tokens, job.namespace
    known = draw_prefix(player, draws, on(Tier.DEVICE)) if source == "cached" else None
    if known is None and source != "none" and player.past:
        known = draws.choice(player.past[-10:])
    return known or ([], draws.choice(("", "", "", "lora")))


# -- requests


def draw_arrive(player: Player, draws: Draws) -> Arguments | None:
    if len(player.jobs) >= MOST_JOBS:
        return None
    page = player.config.page_size
    most = LONGEST * page
    if draws.chance(80):  # a prompt for which the pool is too small ends at once
        most = min(most, player.config.device_pages[0] * page)
    size = min(draws.between(1, most), draws.between(1, most))
    words = [draws.below(3) for _ in range(LONGEST)]
    tokens = [words[at // page % LONGEST] for at in range(min(most, near(player, draws, size)))]
    old, space = draw_beginning(player, draws)
    if old:
        keep = min(len(old) if draws.chance(70) else draws.between(1, len(old)), most - 1)
        tokens = old[:keep] + tokens[: max(1, min(most - keep, 4 * page))]
        if draws.chance(6):
            space = "" if space else "lora"
    priority = draws.choice((0, 0, 1, 2, -1))
    args = {"request": new_number(player), "tokens": pack(tokens), "space": space}
    return args | {"whole": draws.chance(20)} | ({"priority": priority} if priority else {})


def arrive(player: Player, args: Arguments) -> None:
    """A request arrives. whole: whether all of its prompt may be reused, not all but a token."""
    if args["request"] not in player.used:
        tokens = unpack(args["tokens"])
        job = Job(args["request"], tokens, args["space"], len(tokens))
        player.remember(tokens, job.namespace)
        player.arrive(job, len(tokens) - (not args["whole"]), args.get("priority", 0))


def draw_chunk(player: Player, draws: Draws, job: Job) -> Arguments:
    chunk = near(player, draws, draws.between(1, LONGEST * player.config.page_size))
    return {"chunk": min(MOST_TOKENS, chunk)}


def admit(player: Player, job: Job, args: Arguments) -> None:
    """If several passes of a request may be in flight and the chunk is odd, the next chunk begins
    at once, as in a pipeline."""
    outcomes = player.feed(events.AdmitWanted(job.id, args["chunk"]))
    if is_too_large(outcomes):
        player.abort(job)
    elif args["chunk"] % 2 and player.config.passes > 1 and job.stage == "prefilling":
        prefill(player, job, args)


def is_too_large(outcomes: list[Outcome]) -> bool:
    return any(isinstance(item, Refused) and item.reason == "too_large" for item in outcomes)


def prefill(player: Player, job: Job, args: Arguments) -> None:
    if job.may_go_on(player.config.passes):
        player.give_way(player.feed(events.ContinueWanted(job.id, args["chunk"])))


def draw_grow(player: Player, draws: Draws, job: Job) -> Arguments:
    page = player.config.page_size
    more = min(40 * page, near(player, draws, draws.between(1, 2 * page + 1)))
    if draws.chance(25):  # to the end of a page
        more += -(len(job.tokens) + more) % page
    behind = draws.choice((0, page, 2 * page, -1))
    return {"more": more, "behind": behind, "word": draws.below(3)}


def grow(player: Player, job: Job, args: Arguments) -> None:
    """Asks for pages, and generates as many tokens as were granted. behind: how many tokens less
    than it has computed the request reports; -1 if it reports none."""
    more, behind = args["more"], args["behind"]
    computed = max(0, job.committed - behind) if behind >= 0 else 0
    outcomes = player.feed(events.PagesWanted(job.id, len(job.tokens) + more, computed))
    job.reported = max(job.reported, computed)
    if any(isinstance(item, actions.Granted) for item in outcomes):
        job.tokens += [args["word"]] * more
        before, job.committed = job.committed, len(job.tokens) - 1
        player.decode(job, before)
    elif not is_too_large(outcomes):
        player.give_way(outcomes)


def draw_ahead(player: Player, draws: Draws, job: Job) -> Arguments:
    return {"ahead": draws.between(1, interval_of(player.config)) if draws.chance(25) else 0}


def finish(player: Player, job: Job, args: Arguments) -> None:
    """ahead: tokens of a last step that ran ahead of the committed ones, and is discarded."""
    job.committed = max(job.prompt, job.reported, job.committed - args["ahead"])
    player.feed(events.Finished(job.id, player.key(job, job.committed), job.committed))
    del player.jobs[job.id]
    player.remember(job.tokens[: job.committed], job.namespace)


def limit(player: Player, job: Job, args: Arguments) -> None:
    """A waiting request has waited for its prefetch as long as it may."""
    player.feed(events.PrefetchLimitReached(job.id))


# -- replies


def draw_wait(player: Player, draws: Draws) -> Arguments | None:
    return {"polls": draws.between(1, 3)} if player.pending else None


def wait(player: Player, args: Arguments) -> None:
    """Lets time pass and takes replies."""
    for _ in range(args["polls"]):
        if not player.wait():
            return


def draw_reply(player: Player, draws: Draws) -> Arguments | None:
    return reply_to(player, draws.choice(player.pending)) if player.pending else None


def reply_to(player: Player, pending: Pending) -> Arguments:
    alike = [other for other in player.pending if other.kind == pending.kind]
    return {"to": pending.kind, "at": alike.index(pending)}


def reply(player: Player, args: Arguments) -> None:
    """An action in flight is answered now. at: how many of its kind are older."""
    alike = [pending for pending in player.pending if pending.kind == args["to"]]
    for item in alike[args["at"] : args["at"] + 1]:
        if item in player.answerable():
            if args.get("fails"):
                at = player.pending.index(item)
                player.pending[at] = item = item._replace(fault="fail")
            player.take(item)


# -- the cache


def draw_evict(player: Player, draws: Draws) -> Arguments:
    """Prefers later components: evicting one also evicts those after it."""
    tier, names = Tier(int(draws.chance(40))), player.config.components
    at = max(draws.below(len(names)), draws.below(len(names)))
    few = draws.choice((0, 1, 1, 1, 2, 3, near(player, draws, 1) // player.config.page_size))
    pages = player.core.view.pool(tier, at).capacity if draws.chance(12) else few
    return {"tier": int(tier), "component": names[at], "pages": pages}


def evict(player: Player, args: Arguments) -> None:
    """Evicts pages of one component from one tier."""
    if args["component"] in player.config.components:
        player.feed(events.EvictWanted(Tier(args["tier"]), args["component"], args["pages"]))


def hoarding(player: Player) -> list[int]:
    return [job for job in player.jobs if LEAST_MADE_UP <= job < 2 * LEAST_MADE_UP]


def draw_hoard(player: Player, draws: Draws) -> Arguments:
    leave = {"leave": draws.below(4)} if draws.chance(50) else {}
    return {"take": not hoarding(player), **leave}


def hoard(player: Player, args: Arguments) -> None:
    """Extra requests take all available device pages, or all but some, or release them."""
    if not args["take"]:
        for request in hoarding(player):
            player.abort(player.jobs[request])
        return
    pool, before, leave = player.core.view.pool(Tier.DEVICE), -1, args.get("leave", -1)
    for _ in range(20 if leave >= 0 else 1):
        there = pool.free + pool.evictable
        if leave >= 0 and not leave < there != before:
            return
        before = there
        take_pages(player, max(1, there - max(0, leave)))


def take_pages(player: Player, pages: int) -> None:
    """Adds a decoding request with this many backbone pages, and what it needs of the others."""
    request = LEAST_MADE_UP + len(player.used)
    tokens = [(1 << 40) + request] * (pages * player.config.page_size)  # unlike any other prompt
    job = Job(request, tokens, "", len(tokens))
    player.arrive(job, 0)
    player.feed(events.AdmitWanted(request, len(tokens)))
    for _ in range(pages + 1):
        passes = [pending for pending in player.pending if pending.number in job.transfers]
        for pending in passes[:1]:
            player.take(pending)
        if job.stage != "idle":
            break
        player.feed(events.ContinueWanted(request, len(tokens)))
    if job.stage != "decoding":
        player.abort(job)


def draw_flush(player: Player, draws: Draws) -> Arguments | None:
    busy = player.pick(*RUNNING) and not draws.chance(50)
    return None if busy else {"storage": player.config.storage and draws.chance(50)}


def flush(player: Player, args: Arguments) -> None:
    """Flushes the cache, and sometimes its storage; refused while a request or a pass runs."""
    player.feed(events.Flushed(args.get("storage", False)))


def allow(player: Player, event: Event, legal: bool) -> None:
    """Feeds an event; one that is not legal must be refused."""
    if legal:
        player.feed(event)
    else:
        player.refused(event)


def age(player: Player, args: Arguments) -> None:
    """A period of time ends. Drawn where copies expire only."""
    allow(player, events.TimePassed(), bool(player.config.ttl_periods))


def draw_pin(player: Player, draws: Draws) -> Arguments | None:
    on_host = bool(player.config.pin_host_pages) and draws.chance(50)
    running, page, known = player.pick(*RUNNING), player.config.page_size, None
    if running and draws.chance(25):
        job = draws.choice(running)  # what it will commit, with tokens that it may generate
        known = [*job.tokens, *[draws.below(3)] * page], job.namespace
    elif draws.chance(60):
        known = draw_prefix(player, draws, on(Tier(int(on_host))))
    tokens, space = known or draw_beginning(player, draws)
    tokens = tokens[: page * draws.between(1, max(1, min(8, len(tokens) // page)))] or [0]
    pin = draws.below(MOST_PINS)
    return {"pin": pin, "tokens": pack(tokens), "space": space, "tier": int(on_host)}


def pin(player: Player, args: Arguments) -> None:
    """A prefix is pinned: of what is cached, of what a running request will commit, of an earlier
    prompt, or of none. A number that is in use must be refused. Drawn where pins are allowed only.
    """
    key = player.key_of(unpack(args["tokens"]), args["space"])
    legal = args["pin"] not in player.core.view.pins and bool(key.pages)
    allow(player, events.PinWanted(args["pin"], key, Tier(args["tier"])), legal)


def draw_unpin(player: Player, draws: Draws) -> Arguments | None:
    pins = [*player.core.view.pins]
    return (
        {"pin": draws.choice([*pins, draws.below(MOST_PINS)])} if pins or draws.chance(5) else None
    )


def unpin(player: Player, args: Arguments) -> None:
    """A number that is not in use must be refused."""
    allow(player, events.UnpinWanted(args["pin"]), args["pin"] in player.core.view.pins)


def draw_attach(player: Player, draws: Draws) -> Arguments | None:
    """A storage that is detached is soon attached again."""
    if not player.config.has_host or (player.core.view.attached and not draws.chance(20)):
        return None
    return {"again": draws.chance(40), "lost": draws.chance(20)}


def attach(player: Player, args: Arguments) -> None:
    """A storage is attached, or detached if one is. again: attaches a storage also where one is
    attached, as after it came back. lost: without what it had."""
    if player.config.has_host:
        if args.get("lost"):
            player.simulated_store.values.clear()
        detaches = player.core.view.attached and not args["again"]
        player.feed(events.DetachWanted() if detaches else events.StorageAttached())


def draw_stock(player: Player, draws: Draws) -> Arguments:
    """It begins like what is known here; sometimes not all components of it are stored."""
    known = draw_prefix(player, draws, lambda node: True) if draws.chance(60) else None
    tokens, space = known or draw_beginning(player, draws)
    page, keep = player.config.page_size, draws.between(1, len(tokens) or 1)
    tokens = tokens[: keep if draws.chance(40) else (LONGEST - 1) * page]
    tokens = tokens + [draws.below(3)] * (page * draws.between(0 if tokens else 1, 4))
    parts = draws.choice((EVERY_PART, EVERY_PART, EVERY_PART, draws.between(1, EVERY_PART)))
    return {"tokens": pack(tokens), "space": space, "parts": parts}


def stock(player: Player, args: Arguments) -> None:
    """Another cache that shares the storage has stored these parts of a prompt: states at the ends
    of intervals alone."""
    tokens, page = unpack(args["tokens"]), player.config.page_size
    digests = player.key_of(tokens, args["space"]).page_digests()
    player.remember(tokens, args["space"])
    for index, name in enumerate(player.config.components):
        step = interval_of(player.config) // page if residency(name) == "state" else 1
        for simulated_store in player.simulated_stores if args["parts"] >> index & 1 else ():
            simulated_store.values |= {(index, digest) for digest in digests[step - 1 :: step]}


# -- what is forbidden


FORBIDDEN = (
    *("arrive", "match", "admit", "admit for nothing", "prefill", "grow", "finish", "retract"),
    *("abort", "limit", "evict", "detach", "arrive wrongly", "finish wrongly", "grow wrongly"),
    *("prefill nothing", "retract wrongly", "reply to nothing", "reply of another kind"),
    *("repeated reply", "contradicting reply", "reply with wrong pages", "late failure"),
)


def forbidden(player: Player) -> Iterator[tuple[str, Event]]:
    """The events that must be refused now, with their kinds."""
    for job in (Job(NOBODY, [], "", 0, "gone"), *player.jobs.values()):
        gone, waiting, in_flight = job.stage == "gone", job.stage == "waiting", bool(job.transfers)
        size, full = len(job.tokens), not job.may_go_on(player.config.passes)
        most, key = max(0, size - 1) // player.config.page_size, player.key(job, size)
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
            alien = player.key_of(job.tokens[:done], job.namespace + "other")
            yield "finish wrongly", events.Finished(job.id, alien, done)
            yield "finish wrongly", events.Finished(job.id, player.key(job, done), NOBODY)
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
        if gone or in_flight:
            yield "grow", events.PagesWanted(job.id, size + 1)
            yield "retract", events.Retracted(job.id, key, size, most, 0)
        if gone or (in_flight and full):
            yield "prefill", events.ContinueWanted(job.id, 1)
        if gone or in_flight or waiting:
            yield "finish", events.Finished(job.id, player.key(job, 0), 0)
    yield "evict", events.EvictWanted(Tier.DEVICE, "nothing", 1)
    yield "evict", events.EvictWanted(Tier.HOST, player.config.components[0], -1)
    if not player.core.view.attached:
        yield "detach", events.DetachWanted()
    for reply, action in ACTION_OF.items():
        yield "reply to nothing", reply(NOBODY)
        for pending in player.pending:
            if not isinstance(pending.action, action):
                yield "reply of another kind", reply(pending.number)
            elif hasattr(reply, "pages"):
                for pages in (NOBODY, -1):
                    yield "reply with wrong pages", reply(pending.number, pages)
            elif pending.number in player.landed:
                yield "late failure", reply(pending.number, False)
    last = player.last
    if isinstance(last, events.Reply):
        other = {"pages": int(not last[1])} if hasattr(last, "pages") else {"ok": not last[1]}
        yield "repeated reply", last
        yield "contradicting reply", last._replace(**other)


def draw_misuse(player: Player, draws: Draws) -> Arguments:
    there = {kind for kind, _ in forbidden(player)}
    kinds = [kind for kind in FORBIDDEN if kind in there]
    kinds = kinds[-4:] if draws.chance(40) else kinds  # the last ones are seldom possible
    at = max(draws.below(len(kinds)), draws.below(len(kinds)))
    return {"kind": kinds[at], "way": draws.below(8)}


def misuse(player: Player, args: Arguments) -> None:
    """A forbidden event. The core must refuse it and stay unchanged. way: which of its kind."""
    alike = [event for kind, event in forbidden(player) if kind == args["kind"]]
    if alike:
        player.refused(alike[args["way"] % len(alike)])


# -- the table


def several(player: Player, args: Arguments) -> None:
    """Operations that nothing comes between."""
    for name, value in args["steps"]:
        OPERATIONS[name].play(player, value)
        player.finish()


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
PRIORITY = Spare(number(-MOST_PRIORITY, MOST_PRIORITY))
ARRIVE: Schema = {"request": REQUEST, **PROMPTED, "whole": FLAG, "priority": PRIORITY}
GROW: Schema = {"more": CHUNK, "behind": number(-1), "word": number()}
REPLY: Schema = {"to": word(*ACTIONS), "at": number(), "fails": OPTIONAL_FLAG}
EVICT: Schema = {"tier": TIER, "component": word(), "pages": number()}
OPERATIONS: dict[str, Operation] = {
    "abort": of_request(3, (*WAITING, *RUNNING), lambda player, job, _: player.abort(job)),
    "admit": of_request(22, WAITING, admit, draw_chunk, chunk=CHUNK),
    "age": Operation(0, {}, lambda player, draws: {} if player.config.ttl_periods else None, age),
    "arrive": Operation(12, ARRIVE, draw_arrive, arrive),
    "attach": Operation(0, {"again": FLAG, "lost": OPTIONAL_FLAG}, draw_attach, attach),
    "evict": Operation(8, EVICT, draw_evict, evict),
    "finish": of_request(10, DECODING, finish, draw_ahead, ahead=number()),
    "flush": Operation(1, {"storage": OPTIONAL_FLAG}, draw_flush, flush),
    "grow": of_request(14, DECODING, grow, draw_grow, **GROW),
    "hoard": Operation(2, {"take": FLAG, "leave": Spare(number())}, draw_hoard, hoard),
    "limit": of_request(0, WAITING, limit),
    "match": of_request(3, WAITING, lambda player, job, _: player.feed(events.MatchWanted(job.id))),
    "misuse": Operation(3, {"kind": word(*FORBIDDEN), "way": number()}, draw_misuse, misuse),
    "pin": Operation(0, {**PROMPTED, "pin": PIN, "tier": TIER}, draw_pin, pin),
    "prefill": of_request(12, ("idle", "prefilling"), prefill, draw_chunk, chunk=CHUNK),
    "quiesce": Operation(1, {}, lambda player, draws: {}, lambda player, _: player.settle()),
    "reply": Operation(1, REPLY, draw_reply, reply),
    "retract": of_request(3, ("decoding", "idle"), lambda player, job, _: player.retract(job)),
    # in stored sequences only
    "several": Operation(0, {"steps": STEPS}, lambda player, draws: None, several),
    "stock": Operation(0, {**PROMPTED, "parts": number()}, draw_stock, stock),
    "unpin": Operation(0, {"pin": PIN}, draw_unpin, unpin),
    "wait": Operation(18, {"polls": number(1, 64)}, draw_wait, wait),
}


# -- plans

Plan = Iterator[tuple[str, Arguments]]


def visit(
    player: Player, draws: Draws, known: tuple[list[int], str], beyond: int, late: int = 0
) -> Plan:
    """One or more requests for a prompt that begins like a known one: they arrive, then they are
    admitted. Each further one shares one page less with the first. late: replies that are taken in
    between."""
    first, page = new_number(player), player.config.page_size
    longest = max(2, page * min(LONGEST, player.config.device_pages[0]))
    more = [draws.below(3)] * draws.between(1, beyond)
    tokens = [*known[0][: longest - 1], *more][:longest]
    requests = range(first, first + draws.choice((1, 1, 1, 2, 2, 3)))
    for request in requests:
        keep = max(1, len(tokens) - page * (request - first))
        args = {"request": request, "tokens": pack(tokens[:keep]), "space": known[1]}
        priority = draws.choice((0, 0, 0, 1, 2, -1))
        yield "arrive", args | {"whole": draws.chance(10), "priority": priority}
    for _ in range(draws.below(5) if late else 0):
        step = draws.choice(("other", "lookup", "lookup", "fetch", "device", "host", "attach"))
        if step == "other" and (other := draw_arrive(player, draws)):
            yield "arrive", other
        elif step in ("lookup", "fetch"):
            kind = actions.Lookup if step == "lookup" else actions.Fetch
            yield from answer(player, under_way(player, kind)[:1], draws.chance(15))
        elif step in ("device", "host"):
            pages = draws.choice((1, 2, MOST))
            yield from (
                pair for pair in empty(player, int(step == "host"), pages) if draws.chance(70)
            )
        elif step == "attach" and draws.chance(50):
            yield "attach", {"again": draws.chance(70)}
            yield from answer(player, under_way(player, actions.Fetch)[:1], draws.chance(50))
    yield from polls(late)
    most = draws.choice((page, longest))
    for request in requests:
        yield "admit", {"request": request, "chunk": draws.between(1, most)}


def polls(count: int) -> Plan:
    if count:
        yield "wait", {"polls": count}


def release(player: Player, most: int) -> Plan:
    """Lets requests end that have no pass in flight, which frees their pages."""
    for job in player.pick("decoding", "idle")[:most]:
        ahead = {"ahead": 0} if job.stage == "decoding" else {}
        yield "finish" if ahead else "retract", {"request": job.id, **ahead}


def empty(player: Player, tier: int, pages: int = MOST) -> Plan:
    """Evicts so many pages of each component, the backbone last."""
    for name in reversed(player.config.components):
        yield "evict", {"tier": tier, "component": name, "pages": pages}


def answer(player: Player, some: list[Pending], fails: bool = False) -> Plan:
    for pending in some:
        if pending in player.pending:
            yield "reply", {**reply_to(player, pending), "fails": fails}


def under_way(player: Player, kind: type[Any]) -> list[Pending]:
    return [pending for pending in player.pending if isinstance(pending.action, kind)]


def draw_known(player: Player, draws: Draws, stored: bool) -> tuple[list[int], str] | None:
    """A prompt of which something is on host and not on device, or which storage can bring back;
    sometimes another one, which may be there later."""
    known = None
    if stored:
        firsts = [(pair, player.key_of(*pair).page_digests()[:1]) for pair in player.past]
        result = [
            pair for pair, first in firsts if first and (0, *first) in player.simulated_store.values
        ]
        known = draws.choice(result) if result else None
    elif draws.chance(80):
        known = draw_prefix(player, draws, lambda node: node.pages[Tier.DEVICE][0] is None)
    if known is None and not stored:
        known = draw_prefix(player, draws, on(Tier.HOST))
    if known is None and player.past and draws.chance(40):
        known = draws.choice(player.past[-10:])
    return known


def revisit(player: Player, draws: Draws, stored: bool = False) -> Plan:
    """Requests for a prefix that is cached on host, which leads to loads, or that is stored.
    Requests end and replies are taken, so that pages are written back and stored, and device, or
    device and host, are emptied by evictions or a flush."""
    if stored and draws.chance(60):
        yield "stock", draw_stock(player, draws)
    known = draw_known(player, draws, stored) if len(player.jobs) < MOST_JOBS else None
    if known is None or not player.config.has_host:
        return
    if stored and not player.core.view.attached and draws.chance(80):
        yield "attach", {"again": True}
    if draws.chance(70):
        yield from polls(2)
        yield from release(player, MOST_JOBS)
    how = (("both", 8), ("host", 3), ("tail", 6), ("flush", 2), ("", 3))
    chosen = draws.weighted(how if stored else (("device", 3), ("", 5)))
    if chosen == "flush":
        yield "flush", {"storage": draws.chance(40)}
    if chosen in ("both", "tail", "device"):
        every = stored or draws.chance(60)
        yield from (pair for pair in empty(player, 0) if every or draws.chance(50))
        yield from polls(draws.choice((0, 1, 2, 5)))  # for what is written back and stored
    if chosen == "tail":
        yield from [*empty(player, 1, draws.choice((1, 2, 4)))][-draws.choice((1, 3)) :]
    if chosen in ("both", "host"):
        yield from empty(player, 0)
        yield from empty(player, 1)
    yield from polls(draws.choice((0, 1, 4)))
    late = draws.choice((0, 2, 3, 6, 6)) if stored else 0
    yield from visit(player, draws, known, 1 + player.config.page_size * draws.below(3), late)


def begin(
    player: Player, tokens: list[int], space: str, now: bool = True, late: bool = False
) -> Plan:
    """A request for this prompt arrives. now: it is admitted as soon as what is stored has come, or
    with `late` before."""
    request = new_number(player)
    yield "arrive", {"request": request, "tokens": pack(tokens), "space": space, "whole": False}
    yield from answer(player, under_way(player, actions.Lookup))
    if late:
        yield "limit", {"request": request}
    if now:
        yield from answer(player, [] if late else under_way(player, actions.Fetch))
        yield "admit", {"request": request, "chunk": len(tokens)}


def deepen(player: Player, draws: Draws) -> Plan:
    """Turns of a conversation: each prompt is longer than the one before, and what it computed goes
    to host and to storage in between. All of it may be pinned before it is there."""
    known, space = draw_beginning(player, draws)
    page, on_host = player.config.page_size, bool(player.config.pin_host_pages)
    most = page * min(LONGEST, player.config.device_pages[0])
    tokens = (known + [draws.below(3)] * most)[:most]
    if player.config.pin_pages or on_host:
        pin, tier = draws.below(MOST_PINS), int(on_host and draws.chance(70))
        bound = (player.config.pin_host_pages if tier else player.config.pin_pages or (1,))[0]
        part = pack(tokens[: page * draws.between(1, bound or 1)])
        yield "pin", {"pin": pin, "tokens": part, "space": space, "tier": tier}
    for end in sorted({draws.between(1, most) for _ in range(draws.between(2, 4))}):
        if len(player.jobs) < MOST_JOBS:
            yield from begin(player, tokens[:end], space)
        yield from answer(player, under_way(player, actions.Prefill))
        yield from release(player, draws.choice((1, MOST_JOBS)))
        if draws.chance(60):
            yield from empty(player, 0, draws.choice((1, 2, MOST)))
        if draws.chance(80):
            yield from answer(player, under_way(player, actions.Backup), draws.chance(10))
        if draws.chance(20):
            yield from empty(player, 1, draws.choice((1, 2, 4)))
        elif player.config.ttl_periods and draws.chance(40):
            yield from age_all(player, draws)
        if draws.chance(50):
            yield from answer(player, under_way(player, actions.Store))


def race(player: Player, draws: Draws) -> Plan:
    """Two requests compute one prompt at once, and another one waits for it to come from storage.
    What the first one computed goes to host, and a further one loads it, before the second one has
    ended; then the replies come in any order."""
    for job in [*player.jobs.values()] if len(player.jobs) > MOST_JOBS - 4 else ():
        yield "abort", {"request": job.id}
    page, (known, space) = player.config.page_size, draw_beginning(player, draws)
    pages = draws.between(1, max(1, min(LONGEST, player.config.device_pages[0] // 3)))
    tokens = (known if draws.chance(30) else []) + [3 + new_number(player)] * page * pages
    yield from begin(player, tokens, space)
    first = under_way(player, actions.Prefill)[-1:]
    yield from begin(player, tokens + [0] * draws.below(2 * page), space)
    if player.core.view.attached and draws.chance(70):
        more = [*tokens, *[0] * page * draws.between(0, 4), 1]
        yield "stock", {"tokens": pack(more), "space": space, "parts": EVERY_PART}
        yield from begin(player, more, space, now=False)
    yield from answer(player, first)
    yield from release(player, MOST_JOBS)
    yield from empty(player, 0, draws.choice((1, 2, MOST, MOST)))
    yield from answer(player, under_way(player, actions.Backup))
    yield from begin(player, [*tokens, 1], space, late=True)
    while player.pending and draws.chance(85):
        yield from answer(player, [draws.choice(player.pending)], draws.chance(8))
        if draws.chance(20):
            yield from empty(player, draws.below(2), draws.choice((1, 2, MOST)))
        elif draws.chance(20):
            yield "misuse", draw_misuse(player, draws)
        elif draws.chance(8):
            yield from release(player, MOST_JOBS)
            yield "flush", {}


def branch(player: Player, draws: Draws) -> Plan:
    """Prompts of two families: what stands above is used later than leaves elsewhere."""
    page, first = player.config.page_size, 3 + new_number(player)
    yield from release(player, MOST_JOBS)
    for _ in range(draws.between(4, 8)):
        leaf = [draws.below(2)] * page * draws.below(3)
        yield from begin(player, [first + draws.below(2)] * page + leaf + [2], "")
        yield from answer(player, under_way(player, actions.Prefill))
        yield from release(player, MOST_JOBS)
    yield from empty(player, 0, draws.between(2, 4))


def age_all(player: Player, draws: Draws) -> Plan:
    """As many periods end in a row as copies live, or one more."""
    for _ in range(player.config.ttl_periods + draws.below(2)):
        yield "age", {}


def crumble(player: Player, draws: Draws) -> Plan:
    """A branch is written back from its leaves up, while what is stored of it is not answered; the
    last copy may fail. What stands on the node that was not copied goes with it, or expires."""
    if draws.chance(80):
        yield from answer(player, under_way(player, actions.Prefill))
        yield from release(player, MOST_JOBS)
    pages = draws.choice((1, 1, 2, 4))
    for fails in (*[False] * draws.between(1, 3), draws.chance(80)):
        yield from empty(player, 0, pages)
        yield from answer(player, under_way(player, actions.Backup), fails)
    if player.config.ttl_periods and draws.chance(70):
        for _ in range(2):
            yield from age_all(player, draws)
            yield from answer(player, under_way(player, actions.Store))
    else:
        yield from empty(player, draws.below(2), draws.choice((1, 2, MOST)))


def rounds(player: Player, draws: Draws, job: Job) -> Plan:
    """The same request fails, is retracted, and comes again with its prefix on host alone."""
    for _ in range(draws.between(2, 4)):
        step = "prefill" if job.stage == "idle" else "admit"
        yield step, {"request": job.id, **draw_chunk(player, draws, job)}
        for pending in [*player.pending]:
            if getattr(pending.action, "request", -1) == job.id:
                yield from answer(player, [pending], draws.chance(25))
        if job.stage in ("decoding", "idle") and draws.chance(75):
            yield "retract", {"request": job.id}
        if draws.chance(60):
            yield from empty(player, 0)
            yield from answer(player, under_way(player, actions.Backup))


def stride(player: Player, draws: Draws) -> Plan:
    """A request that lacks slots generates past ends of intervals without a report. Others end or
    states are evicted, so that slots are refilled late; it ends between two of them."""
    if len(player.jobs) < MOST_JOBS and draws.chance(60):
        yield from visit(player, draws, draw_beginning(player, draws), 2 * player.config.page_size)
        yield from answer(player, [*player.pending])
    for job in player.pick("decoding")[-1:]:
        for _ in range(draws.between(2, 4)):
            more = draws.choice((0, 0, 1, 2)) * interval_of(player.config) + draws.between(1, 2)
            yield "grow", {"request": job.id, "more": more, "behind": -1, "word": 0}
            if draws.chance(40) and len(player.jobs) > 1:
                yield from release(player, 1)
            yield "evict", draw_evict(player, draws) | {"tier": 0}
        yield "finish", {"request": job.id, "ahead": 0}


_STEPS = (
    *(("reply", 24), ("end", 14), ("grow", 8), ("chunk", 5), ("release", 4), ("admit", 4)),
    *(("device", 8), ("host", 8), ("rival", 6), ("misuse", 5), ("hoard", 3), ("flush", 2)),
    ("rounds", 5),
)
_STEPS_OF_STORAGE = (("store", 10), ("attach", 3), ("wipe", 4), ("limit", 2))


def meddle(player: Player, draws: Draws) -> Plan:
    """Things happen to a request at chosen points between the replies to its actions: it grows or
    ends, a reply fails, pages are evicted, others ask for the same. It comes as in `revisit`, or is
    one that has an action in flight."""
    request = new_number(player)
    if len(player.jobs) < MOST_JOBS and draws.chance(60):
        yield from revisit(player, draws)
        if request not in player.used and not (player.config.has_host and draws.chance(60)):
            beginning = draw_beginning(player, draws)
            yield from visit(player, draws, beginning, 4 * player.config.page_size)
    if request not in player.used and player.pending:
        request = getattr(draws.choice(player.pending).action, "request", -1)
    steps = _STEPS + (_STEPS_OF_STORAGE if player.core.view.attached else ())
    steps += (("crumble", 16),) if player.core.view.writes.on_evict else ()
    steps += (("age", 8),) if player.config.ttl_periods else ()
    for _ in range(draws.between(2, 7)):
        yield from meddle_once(player, draws, draws.weighted(steps), request)


def meddle_once(player: Player, draws: Draws, step: str, request: int) -> Plan:
    page, job = player.config.page_size, player.jobs.get(request)
    job = job or next(iter(player.jobs.values()), None)
    if step == "reply":
        mine = [x for x in player.pending if getattr(x.action, "request", request) == request]
        yield from answer(player, [draws.choice(mine)] if mine else [], draws.chance(15))
    elif step == "store":
        yield from answer(player, under_way(player, actions.Backup))
        yield from answer(player, under_way(player, actions.Store), draws.chance(80))
    elif step in ("device", "host"):
        yield from empty(player, int(step == "host"), draws.choice((1, 2, 4, MOST)))
    elif step == "release":
        yield from release(player, 1)
    elif step in ("flush", "wipe"):
        if draws.chance(60):
            yield from answer(player, under_way(player, actions.Prefill))
            yield from release(player, MOST_JOBS)
        yield "flush", {"storage": step == "wipe"}
    elif step == "attach":
        yield "attach", {"again": draws.chance(60), "lost": draws.chance(50)}
    elif step in ("age", "crumble"):
        yield from (age_all if step == "age" else crumble)(player, draws)
    elif step in ("hoard", "misuse"):
        yield step, (draw_hoard if step == "hoard" else draw_misuse)(player, draws)
    elif job is None:
        return
    elif step == "rounds":
        yield from rounds(player, draws, job)
    elif step == "rival":
        yield from visit(player, draws, (job.tokens[: job.prompt], job.namespace), 1)
    elif step == "grow":
        yield "grow", {"request": job.id, "more": page, "behind": 0, "word": 0}
    elif step in ("end", "limit"):
        ends = {"decoding": ("abort", "finish", "finish", "retract"), "idle": ("abort", "retract")}
        name = draws.choice(ends.get(job.stage, ("abort",))) if step == "end" else step
        yield name, {"request": job.id, **({"ahead": 0} if name == "finish" else {})}
    else:
        chunk = draws.choice((draws.between(1, page), page * LONGEST))
        yield "prefill" if step == "chunk" else "admit", {"request": job.id, "chunk": chunk}


# By name, with how often it is drawn; 0: with a storage, or with states, only.
PLANS: dict[str, tuple[int, Callable[[Player, Draws], Plan]]] = {
    "branch": (3, branch),
    "deepen": (6, deepen),
    "meddle": (34, meddle),
    "race": (6, race),
    "revisit": (14, revisit),
    "stride": (0, stride),
    "warm": (0, lambda player, draws: revisit(player, draws, stored=True)),
}
