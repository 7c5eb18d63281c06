"""Operations on a target: what is drawn for each, and what it does.

They have the names and arguments of those of a core (hicache/operations) where they do the same.
Every entry can be played in every state: one that does not fit does nothing.
"""

from __future__ import annotations

from typing import Any

from hicache.files import FLAG, Spare
from invariants.fuzz.draws import Draws
from invariants.fuzz.hand import Hand
from invariants.fuzz.records import Job
from invariants.fuzz.sequence import (
    MOST_TOKENS,
    NEW_REQUEST,
    PROMPT,
    Operation,
    Schema,
    number,
    of_request,
    pack,
    unpack,
    word,
)
from invariants.fuzz.target import Target, need

Arguments = dict[str, Any]
MOST_JOBS = 6
WORDS = 9  # different tokens
SPACES = ("", "", "", "a")
LONGEST = 12  # pages of a prompt
RUNNING = ("idle", "decoding")


def prompt(hand: Hand, draws: Draws) -> list[int]:
    """Tokens that often begin like an earlier prompt, of lengths that often end at a page."""
    page = hand.page
    most = max(2, min(LONGEST, int(hand.config["pages"]) * 2 // 3) * page)
    tokens: list[int] = []
    if hand.past and draws.chance(75):
        tokens = list(draws.one(hand.past)[0])
        if draws.chance(50):
            cut = draws.between(0, len(tokens))
            tokens = tokens[: cut // page * page if draws.chance(50) else cut]
    more = draws.between(0, 3) * page + draws.one((0, 0, 1, draws.below(page + 1)))
    kind = draws.between(1, WORDS)
    tokens += [kind if draws.chance(70) else draws.between(1, WORDS) for _ in range(more)]
    return (tokens or [kind])[:most]


def _space(hand: Hand, draws: Draws) -> str:
    return draws.one(SPACES) if hand.target.can.namespaces else ""


# -- requests


def _draw_arrive(hand: Hand, draws: Draws) -> Arguments | None:
    if len(hand.jobs) >= MOST_JOBS:
        return None
    args = {
        "request": 1 + max(hand.used, default=-1),
        "tokens": pack(prompt(hand, draws)),
        "space": _space(hand, draws),
    }
    if hand.target.can.serves:
        args["more"] = draws.between(1, 2 * hand.page + 1)
    return args


def _arrive(hand: Hand, args: Arguments) -> None:
    request, tokens = int(args["request"]), unpack(args["tokens"])
    if request in hand.used or not tokens:
        return
    hand.used.add(request)
    job = Job(request, tokens, str(args["space"]), len(tokens))
    job.asked = int(args.get("more", 0))
    hand.remember(tokens, job.namespace)
    hand.jobs[request] = job
    hand.target.arrive(job)


def _draw_probe(hand: Hand, draws: Draws) -> Arguments | None:
    return {"tokens": pack(prompt(hand, draws)), "space": _space(hand, draws)}


def _probe(hand: Hand, args: Arguments) -> None:
    """Looks up a prompt that no request has."""
    tokens = unpack(args["tokens"])
    _match(hand, Job(-1, tokens, str(args["space"]), len(tokens)), args)


def _match(hand: Hand, job: Job, args: Arguments) -> None:
    """Looks up the prompt of a waiting request."""
    hit = hand.target.match(job)
    hand.said(device=hit.device, host=hit.host)


def _chunk(hand: Hand, draws: Draws, job: Job | None = None) -> Arguments:
    whole = LONGEST * hand.page
    return {"chunk": draws.one((whole, whole, draws.between(1, 3 * hand.page), hand.page))}


def _admit(hand: Hand, job: Job, args: Arguments) -> None:
    """Admits a waiting request, and computes the first chunk of its prompt, if it has tokens."""
    hit = hand.target.admit(job)
    if hit is None:
        hand.counts["refused"] += 1
        hand.said(refused=True)
        return
    job.stage = "idle"
    hand.said(device=hit.device, host=hit.host)
    hand.counts["hit on device"] += hit.device > 0
    hand.counts["hit on host"] += hit.host > 0
    hand.collect()
    if args["chunk"]:
        compute(hand, job, int(args["chunk"]))


def compute(hand: Hand, job: Job, chunk: int) -> bool:
    """Computes the next chunk of a prompt. Returns whether the target had the slots."""
    until = min(job.prompt, job.computed + max(1, chunk))
    if until > job.computed:
        if not hand.target.prefill(job, until):
            hand.counts["refused chunk"] += 1
            hand.said(refused=True)
            return False
        job.computed = until
    if job.computed >= job.prompt:
        job.stage = "decoding"
    return True


def _prefill(hand: Hand, job: Job, args: Arguments) -> None:
    """Computes the next chunk of a prompt."""
    compute(hand, job, int(args["chunk"]))


def _draw_grow(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("decoding")
    if not jobs:
        return None
    more = draws.one((1, 1, draws.between(1, hand.page + 3)))
    return {"request": draws.one(jobs).id, "more": more, "word": draws.between(1, 4)}


def _grow(hand: Hand, job: Job, args: Arguments) -> None:
    """Generates tokens, one word over and over."""
    tokens = [int(args["word"])] * max(1, int(args["more"]))
    if hand.target.decode(job, tokens):
        job.tokens += tokens
        job.computed = len(job.tokens)
        hand.said(grown=True)
    else:
        hand.counts["refused growth"] += 1
        hand.said(refused=True)


def _keep(hand: Hand, draws: Draws, job: Job) -> Arguments:
    return {"keep": draws.chance(88)}


def _finish(hand: Hand, job: Job, args: Arguments) -> None:
    """A request ends; what it computed stays in the cache, if `keep` says so."""
    hand.target.finish(job, bool(args["keep"]))
    hand.end(job)


def _retract(hand: Hand, job: Job, args: Arguments) -> None:
    """Preempts a running request: it waits again, with what it generated as part of its prompt."""
    hand.target.retract(job)
    job.stage, job.computed, job.prompt = "waiting", 0, len(job.tokens)


def _abort(hand: Hand, job: Job, args: Arguments) -> None:
    """Ends a request at any stage."""
    if hand.target.can.serves or job.stage != "waiting":
        hand.target.abort(job)
    else:
        hand.target.leave(job)
    hand.end(job)


def _draw_revisit(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.target.can.host or not hand.past or len(hand.jobs) >= MOST_JOBS:
        return None
    tokens, space = draws.one(hand.past)
    more = [draws.between(1, WORDS)] * draws.between(1, hand.page + 1)
    return {
        "request": 1 + max(hand.used, default=-1),
        "tokens": pack([*tokens, *more]),
        "space": space,
        **_chunk(hand, draws),
    }


def _revisit(hand: Hand, args: Arguments) -> None:
    """A request for an earlier prompt, after the device was emptied as far as that goes: what is
    left is on host."""
    hand.target.cool()
    hand.collect()
    hand.now += 20
    hand.take_due()
    _arrive(hand, args)
    _ADMIT.play(hand, args)


# -- the cache


def _draw_evict(hand: Hand, draws: Draws) -> Arguments | None:
    pools = hand.target.can.evicts
    if not pools:
        return None
    slots = draws.between(1, 6) * hand.page
    return {"pool": draws.one(pools), "slots": draws.one((slots, slots, 10 * slots))}


def _evict(hand: Hand, args: Arguments) -> None:
    """Evicts from one pool, as for a request that needs as many slots."""
    pool, slots = str(args["pool"]), int(args["slots"])
    if pool not in hand.target.can.evicts:
        return
    before = hand.target.free()
    said = hand.target.evict(pool, slots)
    after = hand.target.free()
    hand.said(evicted=said)
    hand.counts["evicted slots"] += said
    if pool in before:
        freed = after[pool] - before[pool]
        text = f"{pool}: the engine says that it freed {said} slots, {freed} came free"
        need(freed == said, "EVICT", text, pool)


def _draw_flush(hand: Hand, draws: Draws) -> Arguments | None:
    return {} if hand.target.can.resets and draws.chance(40) else None


def _flush(hand: Hand, args: Arguments) -> None:
    """Empties the cache, after every request was aborted."""
    if hand.target.can.resets and (hand.target.can.aborts or not hand.jobs):
        for job in list(hand.jobs.values()):
            _abort(hand, job, args)
        hand.settle()
        done = hand.target.reset()
        hand.said(emptied=done)
        hand.counts["emptied"] += done


def _wait(hand: Hand, args: Arguments) -> None:
    """Time passes, and the engine polls."""
    for _ in range(min(64, int(args["polls"]))):
        hand.now += 10
        hand.take_due()


# -- a server


def _step(hand: Hand, args: Arguments) -> None:
    """The server takes steps."""
    for _ in range(min(64, int(args["steps"]))):
        step(hand)


def step(hand: Hand) -> bool:
    """One step of the server. Returns whether a request ended."""
    ended = hand.target.step()
    hand.collect()
    for request in ended:
        job = hand.jobs.get(request)
        if job is not None:
            hand.end(job)
    hand.now += 1
    hand.take_due()
    return bool(ended)


_CHUNK = number(1, MOST_TOKENS)
_PROMPTED: Schema = {"tokens": PROMPT, "space": word()}
_ARRIVE: Schema = {"request": NEW_REQUEST, **_PROMPTED, "more": number(1, MOST_TOKENS, True)}
_GROWN: Schema = {"more": _CHUNK, "word": number()}
_ADMIT = of_request(24, ("waiting",), _admit, _chunk, chunk=number(0, MOST_TOKENS))
_BOTH = {
    "abort": of_request(3, ("waiting", *RUNNING), _abort, able=lambda hand: hand.target.can.aborts),
    "evict": Operation(8, {"pool": word(), "slots": number(1)}, _draw_evict, _evict),
    "flush": Operation(1, {}, _draw_flush, _flush),
    "wait": Operation(
        12, {"polls": number(0, 64)}, lambda _, draws: {"polls": draws.one((1, 1, 2, 4))}, _wait
    ),
}
OF_A_CACHE = {
    **_BOTH,
    "admit": _ADMIT,
    "arrive": Operation(16, _ARRIVE, _draw_arrive, _arrive),
    "finish": of_request(18, ("decoding",), _finish, _keep, keep=Spare(FLAG)),
    "grow": of_request(14, ("decoding",), _grow, **_GROWN)._replace(draw=_draw_grow),
    "match": of_request(3, ("waiting",), _match),
    "prefill": of_request(12, ("idle",), _prefill, _chunk, chunk=_CHUNK),
    "probe": Operation(6, _PROMPTED, _draw_probe, _probe),
    "retract": of_request(3, RUNNING, _retract, able=lambda hand: hand.target.can.retracts),
    "revisit": Operation(9, {**_ARRIVE, "chunk": _CHUNK}, _draw_revisit, _revisit),
}
OF_A_SERVER = {
    **_BOTH,
    "arrive": Operation(24, _ARRIVE, _draw_arrive, _arrive),
    "step": Operation(
        50, {"steps": number(1, 64)}, lambda _, draws: {"steps": draws.one((1, 1, 1, 2, 4))}, _step
    ),
}


def operations(kind: type[Target]) -> dict[str, Operation]:
    """The operations of a target, by name: those of its kind, and its own (`OPERATIONS`)."""
    shared = OF_A_SERVER if kind.can.serves else OF_A_CACHE
    return dict(sorted({**shared, **kind.OPERATIONS}.items()))
