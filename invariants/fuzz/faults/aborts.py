"""A request is aborted or retracted while it or another request waits for an action."""

from __future__ import annotations

from hicache.core.actions import Backup, Delete, Store
from hicache.core.events import Reply, Retracted

from ..records import Job, Pending
from .base import Fault, Player


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
        if job is not None and job.stage == "prefilling" and job.flight == one.number:
            size = len(job.tokens)
            most = (size - 1) // hand.config.page_size
            hand.refused(Retracted(job.id, hand.key(job, size), size, most, 0))

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        job = job_of(hand, one)
        if job is not None and job.stage in ("idle", "decoding"):
            hand.retract(job)


KINDS = {
    "abort while arriving": AbortIssued("Load"),
    "abort while prefilling": AbortIssued("Prefill"),
    "abort while writing back": AbortIssued("Backup"),
    "abort before the reply": AbortDone(),
    "abort after the reply": AbortTaken(),
    "abort, then it fails": AbortFailed(),
    "retract mid-prefill": Retract(),
}
