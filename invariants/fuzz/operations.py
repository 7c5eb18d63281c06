"""The player that plays a sequence on a target: the scheduler of a cache, the clients of a server,
and the worker that ends transfers late, in any order or with failures. And the operations: what is
drawn for each, and what it does; `play` and laws judge.

They have the names and arguments of those of a core (hicache/operations) where they do the same.
Every entry can be played in every state: one that does not fit does nothing.
"""

from typing import Any

from hicache.files import FLAG, Spare
from invariants.fuzz.draws import Draws
from invariants.fuzz.schedules import Clients, Job, Pending, by_time
from invariants.fuzz.sequence import (
    MOST_TOKENS,
    NEW_REQUEST,
    PLAIN,
    PROMPT,
    Act,
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
MOST_PAST = 40  # prompts that new ones may begin like


class Player(Clients):
    """answers: what the target answered to each entry."""

    def __init__(self, target: Target, order: str = "time") -> None:
        super().__init__(order)
        self.target = target
        self.config = target.config
        self.page: int = target.config["page"]
        self.answers: list[dict[str, Any]] = []
        self._acts: tuple[Act, ...] = ()
        self._number = 0

    def begin(self, op: str, gap: int, poll: bool, acts: tuple[Act, ...]) -> None:
        """Begins an entry: advances time and may end transfers."""
        self.counts[op] += 1
        self.answers.append({"op": op})
        self.now += gap
        self._acts, self._turn = acts, 0
        if poll:
            self.take_due()

    def answered(self, **answers: Any) -> None:
        """Notes what the target answered to the current operation."""
        self.answers[-1].update(answers)

    def remember(self, tokens: list[int], namespace: str) -> None:
        self.past = [*self.past[1 - MOST_PAST :], (list(tokens), namespace)]

    # -- transfers

    def collect(self) -> None:
        """Gives each transfer that began its delay, tie and fault."""
        for transfer in self.target.transfers():
            act = self._acts[self._turn % len(self._acts)] if self._acts else PLAIN
            self._turn += 1
            self._number += 1
            fault = act.fault if self.target.can.fails and transfer.fails else ""
            due = self.now + self.schedule.later(act.delay)
            self.pending.append(Pending(due, act.tie, self._number, transfer, fault))
            self.counts[f"{transfer.kind.lower()} began"] += 1
            if fault:
                self.counts[f"{transfer.kind.lower()} fails"] += 1

    def take(self, pending: Pending, well: bool = False) -> None:
        """The worker ends this transfer. well: without its fault."""
        self.pending.remove(pending)
        self.target.answer(pending.action, "" if well else pending.fault)

    def take_due(self) -> None:
        """Ends the transfers that are due, in the order of the schedule, then lets the engine take
        the answers."""
        while self.pending:
            ready = self.schedule.offers(self.now, self.pending)
            pending = self.schedule.choose(ready, self.pending) if ready else None
            if pending is None:
                break
            self.take(pending)
        self.target.poll()
        self.collect()

    def settle(self) -> None:
        """Ends every transfer, without faults, until none begins any more."""
        self._acts = ()
        for _ in range(1000):
            self.target.poll()
            self.collect()
            if not self.pending:
                return
            self.take(min(self.pending, key=by_time), well=True)
        raise RuntimeError("transfers never end")

    def end(self, job: Job) -> None:
        """The request is gone; later prompts may begin like it."""
        self.remember(job.tokens, job.namespace)
        del self.jobs[job.id]


# -- prompts


def prompt(player: Player, draws: Draws) -> list[int]:
    """Tokens that often begin like an earlier prompt, of lengths that often end at a page."""
    page = player.page
    most = max(2, min(LONGEST, int(player.config["pages"]) * 2 // 3) * page)
    tokens: list[int] = []
    if player.past and draws.chance(75):
        tokens = list(draws.choice(player.past)[0])
        if draws.chance(50):
            cut = draws.between(0, len(tokens))
            tokens = tokens[: cut // page * page if draws.chance(50) else cut]
    more = draws.between(0, 3) * page + draws.choice((0, 0, 1, draws.below(page + 1)))
    kind = draws.between(1, WORDS)
    tokens += [kind if draws.chance(70) else draws.between(1, WORDS) for _ in range(more)]
    return (tokens or [kind])[:most]


def _space(player: Player, draws: Draws) -> str:
    return draws.choice(SPACES) if player.target.can.namespaces else ""


# -- requests


def _draw_arrive(player: Player, draws: Draws) -> Arguments | None:
    if len(player.jobs) >= MOST_JOBS:
        return None
    args = {
        "request": 1 + max(player.used, default=-1),
        "tokens": pack(prompt(player, draws)),
        "space": _space(player, draws),
    }
    if player.target.can.serves:
        args["more"] = draws.between(1, 2 * player.page + 1)
    return args


def _arrive(player: Player, args: Arguments) -> None:
    request, tokens = int(args["request"]), unpack(args["tokens"])
    if request in player.used or not tokens:
        return
    player.used.add(request)
    job = Job(request, tokens, str(args["space"]), len(tokens))
    job.more = int(args.get("more", 0))
    player.remember(tokens, job.namespace)
    player.jobs[request] = job
    player.target.arrive(job)


def _draw_probe(player: Player, draws: Draws) -> Arguments | None:
    return {"tokens": pack(prompt(player, draws)), "space": _space(player, draws)}


def _probe(player: Player, args: Arguments) -> None:
    """Looks up a prompt that no request has."""
    tokens = unpack(args["tokens"])
    _match(player, Job(-1, tokens, str(args["space"]), len(tokens)), args)


def _match(player: Player, job: Job, args: Arguments) -> None:
    """Looks up the prompt of a waiting request."""
    hit = player.target.match(job)
    player.answered(device=hit.device, host=hit.host)


def _chunk(player: Player, draws: Draws, job: Job | None = None) -> Arguments:
    number = LONGEST * player.page
    return {"chunk": draws.choice((number, number, draws.between(1, 3 * player.page), player.page))}


def _admit(player: Player, job: Job, args: Arguments) -> None:
    """Admits a waiting request, and computes the first chunk of its prompt, if it has tokens."""
    hit = player.target.admit(job)
    if hit is None:
        player.counts["refused"] += 1
        player.answered(refused=True)
        return
    job.stage = "idle"
    player.answered(device=hit.device, host=hit.host)
    player.counts["hit on device"] += hit.device > 0
    player.counts["hit on host"] += hit.host > 0
    player.collect()
    if args["chunk"]:
        compute(player, job, int(args["chunk"]))


def compute(player: Player, job: Job, chunk: int) -> bool:
    """Computes the next chunk of a prompt. Returns whether the target had the slots."""
    until = min(job.prompt, job.computed + max(1, chunk))
    if until > job.computed:
        if not player.target.prefill(job, until):
            player.counts["refused chunk"] += 1
            player.answered(refused=True)
            return False
        job.computed = until
    if job.computed >= job.prompt:
        job.stage = "decoding"
    return True


def _prefill(player: Player, job: Job, args: Arguments) -> None:
    """Computes the next chunk of a prompt."""
    compute(player, job, int(args["chunk"]))


def _draw_grow(player: Player, draws: Draws) -> Arguments | None:
    jobs = player.pick("decoding")
    if not jobs:
        return None
    more = draws.choice((1, 1, draws.between(1, player.page + 3)))
    return {"request": draws.choice(jobs).id, "more": more, "word": draws.between(1, 4)}


def _grow(player: Player, job: Job, args: Arguments) -> None:
    """Generates tokens, one word over and over."""
    tokens = [int(args["word"])] * max(1, int(args["more"]))
    if player.target.decode(job, tokens):
        job.tokens += tokens
        job.computed = len(job.tokens)
        player.answered(grown=True)
    else:
        player.counts["refused growth"] += 1
        player.answered(refused=True)


def _keep(player: Player, draws: Draws, job: Job) -> Arguments:
    return {"keep": draws.chance(88)}


def _finish(player: Player, job: Job, args: Arguments) -> None:
    """A request ends; what it computed stays in the cache, if `keep` says so."""
    player.target.finish(job, bool(args["keep"]))
    player.end(job)


def _retract(player: Player, job: Job, args: Arguments) -> None:
    """Retracts a running request: it waits again, with what it generated as part of its prompt."""
    player.target.retract(job)
    job.stage, job.computed, job.prompt = "waiting", 0, len(job.tokens)


def _abort(player: Player, job: Job, args: Arguments) -> None:
    """Ends a request at any stage."""
    if player.target.can.serves or job.stage != "waiting":
        player.target.abort(job)
    else:
        player.target.leave(job)
    player.end(job)


def _draw_revisit(player: Player, draws: Draws) -> Arguments | None:
    if not player.target.can.host or not player.past or len(player.jobs) >= MOST_JOBS:
        return None
    tokens, space = draws.choice(player.past)
    more = [draws.between(1, WORDS)] * draws.between(1, player.page + 1)
    return {
        "request": 1 + max(player.used, default=-1),
        "tokens": pack([*tokens, *more]),
        "space": space,
        **_chunk(player, draws),
    }


def _revisit(player: Player, args: Arguments) -> None:
    """A request for an earlier prompt, after the device was emptied as far as that goes: what is
    left is on host."""
    player.target.cool()
    player.collect()
    player.now += 20
    player.take_due()
    _arrive(player, args)
    _ADMIT.play(player, args)


# -- the cache


def _draw_evict(player: Player, draws: Draws) -> Arguments | None:
    pools = player.target.can.evicts
    if not pools:
        return None
    slots = draws.between(1, 6) * player.page
    return {"pool": draws.choice(pools), "slots": draws.choice((slots, slots, 10 * slots))}


def _evict(player: Player, args: Arguments) -> None:
    """Evicts from one pool, as for a request that needs as many slots."""
    pool, slots = str(args["pool"]), int(args["slots"])
    if pool not in player.target.can.evicts:
        return
    before = player.target.free()
    message = player.target.evict(pool, slots)
    after = player.target.free()
    player.answered(evicted=message)
    player.counts["evicted slots"] += message
    if pool in before:
        freed = after[pool] - before[pool]
        text = f"{pool}: the engine says that it freed {message} slots, {freed} came free"
        need(freed == message, "EVICT", text, pool)


def _draw_flush(player: Player, draws: Draws) -> Arguments | None:
    return {} if player.target.can.resets and draws.chance(40) else None


def _flush(player: Player, args: Arguments) -> None:
    """Empties the cache, after every request was aborted."""
    if player.target.can.resets and (player.target.can.aborts or not player.jobs):
        for job in list(player.jobs.values()):
            _abort(player, job, args)
        player.settle()
        done = player.target.reset()
        player.answered(emptied=done)
        player.counts["emptied"] += done


def _wait(player: Player, args: Arguments) -> None:
    """Time passes, and the engine polls."""
    for _ in range(min(64, int(args["polls"]))):
        player.now += 10
        player.take_due()


# -- a server


def _step(player: Player, args: Arguments) -> None:
    """The server takes steps."""
    for _ in range(min(64, int(args["steps"]))):
        step(player)


def step(player: Player) -> bool:
    """One step of the server. Returns whether a request ended."""
    ended = player.target.step()
    player.collect()
    for request in ended:
        job = player.jobs.get(request)
        if job is not None:
            player.end(job)
    player.now += 1
    player.take_due()
    return bool(ended)


_CHUNK = number(1, MOST_TOKENS)
_PROMPTED: Schema = {"tokens": PROMPT, "space": word()}
_ARRIVE: Schema = {"request": NEW_REQUEST, **_PROMPTED, "more": Spare(_CHUNK)}
_GROWN: Schema = {"more": _CHUNK, "word": number()}
_ADMIT = of_request(24, ("waiting",), _admit, _chunk, chunk=number(0, MOST_TOKENS))
_BOTH = {
    "abort": of_request(3, ("waiting", *RUNNING), _abort, able=lambda item: item.target.can.aborts),
    "evict": Operation(8, {"pool": word(), "slots": number(1)}, _draw_evict, _evict),
    "flush": Operation(1, {}, _draw_flush, _flush),
    "wait": Operation(
        12, {"polls": number(0, 64)}, lambda _, draws: {"polls": draws.choice((1, 1, 2, 4))}, _wait
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
    "retract": of_request(3, RUNNING, _retract, able=lambda player: player.target.can.retracts),
    "revisit": Operation(9, {**_ARRIVE, "chunk": _CHUNK}, _draw_revisit, _revisit),
}
OF_A_SERVER = {
    **_BOTH,
    "arrive": Operation(24, _ARRIVE, _draw_arrive, _arrive),
    "step": Operation(
        50,
        {"steps": number(1, 64)},
        lambda _, draws: {"steps": draws.choice((1, 1, 1, 2, 4))},
        _step,
    ),
}


def operations(kind: type[Target]) -> dict[str, Operation]:
    """The operations of a target, by name: those of its kind, and its own (`OPERATIONS`)."""
    shared = OF_A_SERVER if kind.can.serves else OF_A_CACHE
    return dict(sorted({**shared, **kind.OPERATIONS}.items()))
