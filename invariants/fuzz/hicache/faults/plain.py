"""The faults of one or several cores without a storage.

Every fault is recoverable: a miss is legal, but wrong bytes or a hang are not. The order of KINDS
is that in which they are drawn.
"""

from __future__ import annotations

from collections.abc import Callable

from hicache.core.actions import Backup, Delete, Granted, Prefill, Store
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    Event,
    EvictWanted,
    FetchDone,
    Finished,
    Flushed,
    LoadDone,
    LookupDone,
    PagesWanted,
    PrefillDone,
    Reply,
    Retracted,
    StoreDone,
)
from hicache.core.types import Tier
from invariants.books.kinds import interval_of
from invariants.books.tickets import ACTION_OF
from invariants.fuzz.hicache.ballast import squeeze
from invariants.fuzz.hicache.faults.base import EVERY, LOST, SITES, Fault, Player
from invariants.fuzz.records import Job, Pending


def job_of(hand: Player, one: Pending) -> Job | None:
    """Returns the request of the action; for a copy of no request, the first waiting one."""
    if isinstance(one.action, Backup | Store | Delete):
        return next((job for job in hand.jobs.values() if job.stage == "waiting"), None)
    return hand.jobs.get(one.action.request)


def abort(hand: Player, one: Pending) -> None:
    job = job_of(hand, one)
    if job is not None:
        hand.abort(job)


class AbortIssued(Fault):
    """Aborts when the action was issued: during a load, a pass or a write-back."""

    def __init__(self, site: str) -> None:
        self.sites = (site,)

    def issued(self, hand: Player, one: Pending) -> None:
        abort(hand, one)


class AbortDone(Fault):
    """Aborts after the work has ended, before the reply is taken."""

    def before(self, hand: Player, one: Pending) -> None:
        abort(hand, one)


class AbortTaken(Fault):
    """Aborts after the reply was taken."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        abort(hand, one)


class AbortFailed(AbortDone):
    """Aborts before the reply, which reports a failure."""

    fine = False


class Retract(Fault):
    """Retracts during the request's pass, which is refused, and again after the pass."""

    sites = ("Prefill",)

    def issued(self, hand: Player, one: Pending) -> None:
        job = job_of(hand, one)
        if job is not None and one.number in job.flights:
            size = len(job.tokens)
            most = (size - 1) // hand.config.page_size
            hand.refused(Retracted(job.id, hand.key(job, size), size, most, 0))

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        job = job_of(hand, one)
        if job is not None and job.stage in ("idle", "decoding"):
            hand.retract(job)


class RanAhead(Fault):
    """A decode step runs ahead and is rejected: its tokens are discarded and the request ends."""

    sites = ("Prefill",)

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        job = hand.jobs.get(one.action.request) if isinstance(one.action, Prefill) else None
        if job is None or job.stage != "decoding":
            return
        more = interval_of(hand.config)
        outcomes = hand.feed(PagesWanted(job.id, len(job.tokens) + more, 0))
        if any(isinstance(item, Granted) for item in outcomes):
            tokens, ids = [*job.tokens, *([7] * more)], list(job.ids)
            hand.decode(job, ids, tokens, (job.committed, len(tokens) - 1))
        hand.feed(Finished(job.id, hand.key(job, job.committed), job.committed))
        del hand.jobs[job.id]


class Squeeze(Fault):
    """A request with a unique prompt takes pages, so that the pools are short for the others."""

    sites = SITES  # what it does leads to stores

    def __init__(self, percent: int, ends: bool) -> None:
        self.percent, self.ends = percent, ends

    def issued(self, hand: Player, one: Pending) -> None:
        squeeze(hand, self.percent, self.ends)


def _all_of(hand: Player, tier: Tier) -> list[Event]:
    names, sizes = hand.config.components, hand.core.view.pools(tier)
    return [EvictWanted(tier, name, pool.capacity) for name, pool in zip(names, sizes, strict=True)]


class Flush(Fault):
    """Flushes during a copy; refused while a request is admitted or a pass runs."""

    def before(self, hand: Player, one: Pending) -> None:
        hand.feed(Flushed())


class Evict(Fault):
    """Evicts everything that can be evicted from a tier. when: "issued", "before" or "after"."""

    def __init__(self, tier: Tier, when: str) -> None:
        self.tier, self.when = tier, when

    def _evict(self, hand: Player, when: str) -> None:
        for event in _all_of(hand, self.tier) if when == self.when else ():
            hand.feed(event)

    def issued(self, hand: Player, one: Pending) -> None:
        self._evict(hand, "issued")

    def before(self, hand: Player, one: Pending) -> None:
        self._evict(hand, "before")

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        self._evict(hand, "after")


class Error(Fault):
    """The work fails: when it is due, later, or with a negative number at once."""

    fine = False

    def __init__(self, later: int, *sites: str) -> None:
        self.later = later
        self.sites = sites or self.sites

    def due(self, hand: Player, due: int) -> int:
        return hand.now if self.later < 0 else due + self.later


class Forbidden(Fault):
    """Sends an event that is forbidden while a pass of the request runs. full: while no other one
    may begin. The core must refuse it and stay unchanged."""

    sites = ("Prefill",)

    def __init__(self, event: Callable[[Player, Job], Event], full: bool = False) -> None:
        self.event = event
        self.full = full

    def issued(self, hand: Player, one: Pending) -> None:
        job = job_of(hand, one)
        if job is None or one.number not in job.flights:
            return
        if not (self.full and job.may_go_on(hand.config.passes)):
            hand.refused(self.event(hand, job))


class AfterItsLoad(Fault):
    """A pass fails after its load has landed: the loaded pages stay, and the request is computed
    again."""

    fine = False
    sites = ("Prefill",)

    def before(self, hand: Player, one: Pending) -> None:
        after = one.action.after if isinstance(one.action, Prefill) else ()
        for load in [other for other in hand.pending if other.number in after]:
            hand.take(load)


def postpone(hand: Player, site: str, until: int) -> None:
    """Delays all replies of this kind until `until`."""
    hand.slow[site] = max(until, hand.slow.get(site, 0))
    for at, one in enumerate(hand.pending):
        if type(one.action).__name__ == site and one.due < LOST:
            hand.pending[at] = one._replace(due=max(one.due, until))


class Clog(Fault):
    """Delays all replies of the action's kind."""

    def issued(self, hand: Player, one: Pending) -> None:
        postpone(hand, type(one.action).__name__, hand.now + 300)


class Swizzled(Fault):
    """Delays all replies; the kinds resume one after another in this order."""

    def __init__(self, order: tuple[str, ...]) -> None:
        self.order = order

    def issued(self, hand: Player, one: Pending) -> None:
        for at, site in enumerate(self.order, 1):
            postpone(hand, site, hand.now + 120 * at)


class StalePoll(Fault):
    """The next polls see nothing."""

    def issued(self, hand: Player, one: Pending) -> None:
        hand.blind = 3


class Jump(Fault):
    """Advances time, so that all replies except lost ones are due at once."""

    def issued(self, hand: Player, one: Pending) -> None:
        hand.now += 2000


NOBODY = 1 << 29


class Twice(Fault):
    """Repeats the reply."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        hand.refused(reply)


class Unknown(Fault):
    """Sends a reply to an unknown action before the reply."""

    def before(self, hand: Player, one: Pending) -> None:
        for reply in (LoadDone(NOBODY), BackupDone(NOBODY), PrefillDone(NOBODY)):
            hand.refused(reply)


class Crossed(Fault):
    """Sends a reply of another kind for this flight."""

    def before(self, hand: Player, one: Pending) -> None:
        for reply, action in ACTION_OF.items():
            known = action.__name__ in SITES or hand.config.storage
            if known and not isinstance(one.action, action):
                hand.refused(reply(one.number))


class Changed(Fault):
    """Repeats the reply with the opposite result."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        if isinstance(reply, LookupDone | FetchDone | StoreDone):
            hand.refused(reply._replace(pages=int(not reply.pages)))
        else:
            hand.refused(reply._replace(ok=not reply.ok))


class TooLate(Fault):
    """Reports the failure of a load after the pass that read it."""

    sites = ("Load",)

    def before(self, hand: Player, one: Pending) -> None:
        if one.number in hand.landed:
            hand.refused(LoadDone(one.number, False))


RIVALS = 1 << 21


class Rival(Fault):
    """Another request arrives with the prefix that is being loaded or computed."""

    sites = ("Load", "Prefill")

    def issued(self, hand: Player, one: Pending) -> None:
        first = job_of(hand, one)
        if first is None or isinstance(one.action, Backup):
            return
        number = RIVALS + len(hand.used)
        hand.used.add(number)
        size = first.prompt
        job = hand.jobs[number] = Job(number, first.tokens[:size], first.namespace, size)
        if hand.content is not None:
            hand.content.extend(job.ids, job.namespace, job.tokens)
        most = (size - 1) // hand.config.page_size
        hand.feed(Arrived(number, hand.key(job, size), size, most))
        hand.feed(AdmitWanted(number, size))


BEHIND = 300


def lane_of(rank: int) -> str:
    """The key of a rank in the hand's `slow`."""
    return f"rank {rank}"


class FallsBehind(Fault):
    """One of several ranks falls behind: none of its actions ends for a while."""

    of_ranks = True

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def issued(self, hand: Player, one: Pending) -> None:
        until = hand.now + BEHIND
        lane = lane_of(self.rank)
        hand.slow[lane] = max(until, hand.slow.get(lane, 0))
        for at, other in enumerate(hand.pending):
            if other.due < LOST:
                hand.pending[at] = other._replace(due=max(other.due, until))


class Timed(Fault):
    """later: delay of the reply, at once if negative. step: the reply waits for the next multiple
    of it, so that several come together. turned: the latest action is answered first.
    """

    def __init__(self, later: int, step: int = 1, turned: bool = False, *sites: str) -> None:
        self.later, self.step, self.turned = later, step, turned
        self.sites = sites or EVERY

    def due(self, hand: Player, due: int) -> int:
        if self.later >= LOST:
            return LOST
        return -(-(due + self.later) // self.step) * self.step if self.later >= 0 else hand.now

    def tie(self, number: int, tie: int) -> int:
        return -number if self.turned else tie


class Torn(Fault):
    """A copy fails after some of its pages have arrived. there: which."""

    fine = False
    sites = ("Load", "Backup")

    def __init__(self, there: Callable[[int, int], bool]) -> None:
        self.there = there

    def arrives(self, at: int, count: int) -> bool:
        return self.there(at, count)


KINDS = {
    "abort while arriving": AbortIssued("Load"),
    "abort while prefilling": AbortIssued("Prefill"),
    "abort while writing back": AbortIssued("Backup"),
    "abort before the reply": AbortDone(),
    "abort after the reply": AbortTaken(),
    "abort, then it fails": AbortFailed(),
    "retract mid-prefill": Retract(),
    "step ahead rejected": RanAhead(),
    "device squeezed": Squeeze(50, False),
    "allocation refused": Squeeze(100, False),
    "host squeezed": Squeeze(100, True),
    "flush during the copy": Flush(),
    "evict device during the copy": Evict(Tier.DEVICE, "issued"),
    "evict host during the copy": Evict(Tier.HOST, "issued"),
    "evict device before the reply": Evict(Tier.DEVICE, "before"),
    "evict host before the reply": Evict(Tier.HOST, "before"),
    "evict device after the reply": Evict(Tier.DEVICE, "after"),
    "fail": Error(0),
    "submit error": Error(-1),
    "late error": Error(200),
    "pass error": Error(0, "Prefill"),
    "chunk in flight": Forbidden(lambda hand, job: ContinueWanted(job.id, 1), full=True),
    "admitted twice": Forbidden(lambda hand, job: AdmitWanted(job.id, 1)),
    "growth in flight": Forbidden(lambda hand, job: PagesWanted(job.id, len(job.tokens) + 1)),
    "finish in flight": Forbidden(lambda hand, job: Finished(job.id, hand.key(job, 0), 0)),
    "pass error after its load": AfterItsLoad(),
    "clog": Clog(),
    "swizzled clog": Swizzled(SITES),
    "swizzled clog, passes first": Swizzled(SITES[::-1]),
    "stale poll": StalePoll(),
    "host pause": Jump(),
    "repeated reply": Twice(),
    "unknown reply": Unknown(),
    "reply of another kind": Crossed(),
    "contradicting reply": Changed(),
    "load fails after its pass": TooLate(),
    "rival for the same prefix": Rival(),
    "first rank falls behind": FallsBehind(0),
    "second rank falls behind": FallsBehind(1),
    "lost": Timed(LOST),
    "late": Timed(200),
    "very late": Timed(5000),
    "burst": Timed(-1),
    "bunched": Timed(0, 64),
    "reordered": Timed(0, 64, True),
    "engine stall": Timed(3000, 1, False, "Prefill"),
    "overtaken load": Timed(400, 1, False, "Load"),
    "torn": Torn(lambda at, count: at < count // 2),
    "torn suffix": Torn(lambda at, count: at >= count // 2),
    "torn half": Torn(lambda at, count: bool((at * 2654435761 >> 7) & 1)),
    "torn last page": Torn(lambda at, count: at < count - 1),
    "torn whole": Torn(lambda at, count: True),
}
