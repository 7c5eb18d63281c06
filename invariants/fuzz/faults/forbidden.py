"""Events that are forbidden while a pass of the request runs. The core must refuse them and stay
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from hicache.core.events import AdmitWanted, ContinueWanted, Event, Finished, PagesWanted

from ..records import Job, Pending
from .aborts import job_of
from .base import Fault, Player


class Forbidden(Fault):
    sites = ("Prefill",)

    def __init__(self, event: Callable[[Player, Job], Event]) -> None:
        self.event = event

    def issued(self, hand: Player, one: Pending) -> None:
        job = job_of(hand, one)
        if job is not None and job.stage == "prefilling" and job.flight == one.number:
            hand.refused(self.event(hand, job))


KINDS = {
    "chunk in flight": Forbidden(lambda hand, job: ContinueWanted(job.id, 1)),
    "admitted twice": Forbidden(lambda hand, job: AdmitWanted(job.id, 1)),
    "growth in flight": Forbidden(lambda hand, job: PagesWanted(job.id, len(job.tokens) + 1)),
    "finish in flight": Forbidden(lambda hand, job: Finished(job.id, hand.key(job, 0), 0)),
}
