"""A request goes away at one of the points at which somebody waits for something."""

from __future__ import annotations

from hicache.core.actions import Backup
from hicache.core.events import Reply, Retracted

from ..records import Job, Pending
from .base import Fault, Player


def job_of(hand: Player, one: Pending) -> Job | None:
    """The request that the action works for; of a backup, the one that waits longest."""
    if isinstance(one.action, Backup):
        return next((job for job in hand.jobs.values() if job.stage == "waiting"), None)
    return hand.jobs.get(one.action.request)


def abort(hand: Player, one: Pending) -> None:
    job = job_of(hand, one)
    if job is not None:
        hand.abort(job)


class AbortIssued(Fault):
    """It has just begun: a load arrives, a pass runs, a page is written back."""

    def __init__(self, site: str) -> None:
        self.sites = (site,)

    def issued(self, hand: Player, one: Pending) -> None:
        abort(hand, one)


class AbortDone(Fault):
    """The work is done, and nobody has looked."""

    def before(self, hand: Player, one: Pending) -> None:
        abort(hand, one)


class AbortTaken(Fault):
    """The reply was the last that it saw."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        abort(hand, one)


class AbortFailed(AbortDone):
    """It goes away, and then its work fails."""

    fine = False


class Retract(Fault):
    """Wanted back while a pass runs, which is refused, and given back as soon as that is over."""

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
