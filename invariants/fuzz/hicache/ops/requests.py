"""What a scheduler and an engine do with single requests."""

from __future__ import annotations

from hicache.core.actions import Granted, Refused
from hicache.core.components.base import UNBOUNDED
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    ContinueWanted,
    Finished,
    MatchWanted,
    PagesWanted,
)
from hicache.core.radix.node import Pin
from hicache.core.types import MOST_PRIORITY, Tier
from invariants.books.kinds import interval_of
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.hand import Hand, Job
from invariants.fuzz.hicache.ops.base import Arguments, Operation
from invariants.fuzz.hicache.spell import cached, tokens_of
from invariants.fuzz.records import LEAST_MADE_UP
from invariants.fuzz.sequence import (
    FLAG,
    MOST_TOKENS,
    NEW_REQUEST,
    PROMPT,
    REQUEST,
    Schema,
    number,
    pack,
    unpack,
    word,
)

MOST_JOBS = 6
MOST_ADDED = 4  # pages behind a known beginning
NEAR = 20  # percent of the lengths that are near a number in the state
BESIDE_PIN = 60  # percent of the prompts, while a pin holds device pages of a small pool
OTHER_SPACE = 6  # percent of the known beginnings that are asked for in another namespace
LONGEST, LONGEST_IN_LARGE_POOLS = 12, 40  # pages
OF_REQUEST: Schema = {"request": REQUEST}
ARRIVE_ARGS: Schema = {
    "request": NEW_REQUEST,
    "tokens": PROMPT,
    "space": word(),
    "whole": FLAG,
    "priority": number(-MOST_PRIORITY, MOST_PRIORITY, optional=True),
}
PRIORITIES = (0, 0, 1, 2, -1)


def draw_arrive(hand: Hand, draws: Draws) -> Arguments | None:
    if len(hand.jobs) >= MOST_JOBS:
        return None
    page = hand.config.page_size
    most = longest_pages(hand) * page
    if draws.chance(80):  # a prompt for which the pool is too small ends at once
        most = min(most, hand.config.device_pages[0] * page)
    words = [draws.below(3) for _ in range(LONGEST)]
    size = min(draws.between(1, most), draws.between(1, most))
    if draws.chance(NEAR):
        size = min(most, near(hand, draws))
    tokens = [words[at // page % LONGEST] for at in range(size)]
    old, space = _beginning(hand, draws)
    if old:
        keep = len(old) if draws.chance(70) else draws.between(1, len(old))
        keep = min(keep, most - 1)
        tokens = old[:keep] + tokens[: max(1, min(most - keep, MOST_ADDED * page))]
        if draws.chance(OTHER_SPACE):
            space = "" if space else "lora"
    pins = _pins(hand)
    if pins and draws.chance(BESIDE_PIN):
        tokens, space = _beside(hand, draws, draws.one(pins))
    whole = draws.chance(20)
    args: Arguments = {
        "request": number_of(hand),
        "tokens": pack(tokens),
        "space": space,
        "whole": whole,
    }
    terms = getattr(hand.core.view.eviction, "order", ())
    if not terms or any(term.fact == "priority" for term in terms):
        args["priority"] = draws.one(PRIORITIES)
    return args


def near(hand: Hand, draws: Draws) -> int:
    """A number of tokens at, one below or one above a number of pages that decides something: what
    is free or at hand in a pool, its size, or what a component requires."""
    view, page = hand.core.view, hand.config.page_size
    pools = (*view.pools(Tier.DEVICE), *view.pools(Tier.HOST))
    pages = [count for pool in pools for count in (pool.free, pool.available, pool.capacity)]
    pages += [one.window_pages for one in view.components if one.window_pages < UNBOUNDED]
    return max(1, page * draws.one(pages) + draws.one((-page, -1, 0, 0, 1, page)))


def _pins(hand: Hand) -> list[Pin]:
    """What holds device pages of a pool that a prompt can fill."""
    if hand.config.device_pages[0] > LONGEST_IN_LARGE_POOLS:
        return []
    pins = hand.core.view.pins.values()
    return [pin for pin in pins if pin.tier == Tier.DEVICE and pin.held_pages > 1]


def _beside(hand: Hand, draws: Draws, pin: Pin) -> tuple[list[int], str]:
    """A prompt that begins like a pinned prefix, and is about as long as a request may be that
    shares its beginning with it."""
    page = hand.config.page_size
    beginning = tokens_of(pin.key.raw, hand.pairs)
    shared = draws.between(1, pin.held_pages - 1)
    added = hand.config.device_pages[0] - pin.held_pages + draws.one((-1, 0, 1))
    other = (beginning[shared * page - 1] + draws.between(1, 2)) % 3
    return beginning[: shared * page] + [other] * max(1, added * page), pin.key.namespace


def longest_pages(hand: Hand) -> int:
    """The most pages of a drawn prompt."""
    return max(LONGEST, min(LONGEST_IN_LARGE_POOLS, hand.config.device_pages[0] // 4))


def _beginning(hand: Hand, draws: Draws) -> tuple[list[int], str]:
    """Returns the tokens with which a prompt starts, and its namespace: those of a prefix that is
    cached on device now, of a request that runs with what it has generated, of an earlier prompt,
    or none.
    """
    source = draws.weighted((("cached", 50), ("running", 12), ("past", 20), ("none", 18)))
    running = hand.pick("decoding", "idle", "prefilling")
    if source == "running" and running:
        job = draws.one(running)
        return job.tokens, job.namespace
    if source == "cached":
        known = cached(hand.core.view, hand.config.page_size, hand.pairs, Tier.DEVICE)
        if known:
            path, space = draws.one(known)
            return tokens_of(path, hand.pairs), space
    if source != "none" and hand.past:
        return draws.one(hand.past)
    return [], draws.one(("", "", "", "lora"))


def arrive(hand: Hand, args: Arguments) -> None:
    """A request arrives. Its prompt often starts like a cached prefix or like an earlier prompt."""
    number, tokens = int(args["request"]), unpack(args["tokens"])
    if number in hand.used or not tokens:
        return
    hand.used.add(number)
    job = Job(number, tokens, str(args["space"]), len(tokens))
    hand.jobs[number] = job
    hand.remember(tokens, job.namespace)
    if hand.content is not None:
        hand.content.extend(job.ids, job.namespace, tokens)
    page = hand.config.page_size
    reusable = len(tokens) // page if args["whole"] else (len(tokens) - 1) // page
    priority = int(args.get("priority", 0))
    hand.feed(Arrived(number, hand.key(job, len(tokens)), len(tokens), reusable, priority))


def number_of(hand: Hand) -> int:
    """The next request number; ignores requests made by faults."""
    return 1 + max((one for one in hand.used if one < LEAST_MADE_UP), default=-1)


ADMIT_ARGS: Schema = {"request": REQUEST, "chunk": number(1, MOST_TOKENS)}


def draw_admit(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("waiting")
    if not jobs:
        return None
    chunk = draws.between(1, LONGEST * hand.config.page_size)
    chunk = min(MOST_TOKENS, near(hand, draws)) if draws.chance(NEAR) else chunk
    return {"request": draws.one(jobs).id, "chunk": chunk}


def admit(hand: Hand, args: Arguments) -> None:
    """The scheduler admits a waiting request. If several of its passes may be in flight and the
    chunk is odd, the next chunk begins at once."""
    job = hand.job(args["request"], "waiting")
    if job is None:
        return
    chunk = max(1, int(args["chunk"]))
    outcomes = hand.feed(AdmitWanted(job.id, chunk))
    if any(isinstance(item, Refused) and item.reason == "too_large" for item in outcomes):
        hand.abort(job)
    elif chunk % 2 and hand.config.passes > 1 and job.stage == "prefilling":
        prefill(hand, args)  # a pipeline does not wait for the first pass


PREFILL_ARGS: Schema = {"request": REQUEST, "chunk": number(1, MOST_TOKENS)}


def draw_prefill(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = [one for one in hand.jobs.values() if one.may_go_on(hand.config.passes)]
    if not jobs:
        return None
    chunk = draws.between(1, LONGEST * hand.config.page_size)
    return {"request": draws.one(jobs).id, "chunk": chunk}


def prefill(hand: Hand, args: Arguments) -> None:
    """Requests the next chunk of a prompt."""
    job = hand.job(args["request"], "idle", "prefilling")
    if job is not None and job.may_go_on(hand.config.passes):
        hand.give_way(hand.feed(ContinueWanted(job.id, max(1, int(args["chunk"])))))


MOST_MORE = 40  # pages
GROW_ARGS: Schema = {
    "request": REQUEST,
    "more": number(1, MOST_TOKENS),
    "behind": number(-1),
    "word": number(),
}


def draw_grow(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("decoding")
    if not jobs:
        return None
    page = hand.config.page_size
    more = draws.between(1, 2 * page + 1)
    job = draws.one(jobs)
    if draws.chance(NEAR):
        more = max(1, min(MOST_MORE * page, near(hand, draws) - draws.one((0, len(job.tokens)))))
    behind = draws.below(4)
    told = -1 if behind == 3 else behind * page
    return {"request": job.id, "more": more, "behind": told, "word": draws.below(3)}


def grow(hand: Hand, args: Arguments) -> None:
    """A decoding request asks for pages, and generates as many tokens as it was granted."""
    job = hand.job(args["request"], "decoding")
    if job is None:
        return
    more, behind = max(1, int(args["more"])), int(args["behind"])
    computed = max(0, job.committed - behind) if behind >= 0 else 0
    outcomes = hand.feed(PagesWanted(job.id, len(job.tokens) + more, computed))
    job.told = max(job.told, computed)
    if any(isinstance(item, Refused) and item.reason == "too_large" for item in outcomes):
        return
    if not any(isinstance(item, Granted) for item in outcomes):
        hand.give_way(outcomes)
        return
    job.tokens += [int(args["word"])] * more
    before, job.committed = job.committed, len(job.tokens) - 1
    hand.decode(job, job.ids, job.tokens, (before, job.committed))


FINISH_ARGS: Schema = {"request": REQUEST, "ahead": number()}


def draw_finish(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("decoding")
    if not jobs:
        return None
    config = hand.config
    ahead = draws.between(1, interval_of(config))
    return {"request": draws.one(jobs).id, "ahead": ahead if draws.chance(25) else 0}


def finish(hand: Hand, args: Arguments) -> None:
    """A decoding request finishes; its last step may have run ahead of the committed tokens."""
    job = hand.job(args["request"], "decoding")
    if job is None:
        return
    least = max(job.prompt, job.told)
    job.committed = max(least, job.committed - max(0, int(args["ahead"])))
    hand.feed(Finished(job.id, hand.key(job, job.committed), job.committed))
    hand.remember(job.tokens[: job.committed], job.namespace)
    del hand.jobs[job.id]


def draw_retract(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("decoding", "idle")
    return {"request": draws.one(jobs).id} if jobs else None


def retract(hand: Hand, args: Arguments) -> None:
    """A running request is retracted: it frees its pages and waits again."""
    job = hand.job(args["request"], "decoding", "idle")
    if job is not None:
        hand.retract(job)


STAGES = ("waiting", "prefilling", "idle", "decoding")


def draw_abort(hand: Hand, draws: Draws) -> Arguments | None:
    stage = draws.one(STAGES)
    jobs = hand.pick(stage) or hand.pick(*STAGES)
    return {"request": draws.one(jobs).id} if jobs else None


def abort(hand: Hand, args: Arguments) -> None:
    """A request is aborted, at any stage."""
    job = hand.job(args["request"], *STAGES)
    if job is not None:
        hand.abort(job)


def draw_waiting(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("waiting")
    return {"request": draws.one(jobs).id} if jobs else None


def match(hand: Hand, args: Arguments) -> None:
    """Asks for the match of a waiting request."""
    job = hand.job(args["request"], "waiting")
    if job is not None:
        hand.feed(MatchWanted(job.id))


OPS = {
    "arrive": Operation(12, ARRIVE_ARGS, draw_arrive, arrive),
    "admit": Operation(22, ADMIT_ARGS, draw_admit, admit),
    "prefill": Operation(12, PREFILL_ARGS, draw_prefill, prefill),
    "grow": Operation(14, GROW_ARGS, draw_grow, grow),
    "finish": Operation(10, FINISH_ARGS, draw_finish, finish),
    "retract": Operation(3, OF_REQUEST, draw_retract, retract),
    "abort": Operation(3, OF_REQUEST, draw_abort, abort),
    "match": Operation(3, OF_REQUEST, draw_waiting, match),
}
