"""A decode step runs ahead and is rejected: its tokens are discarded and the request finishes."""

from __future__ import annotations

from hicache.core.actions import Granted, Prefill
from hicache.core.events import Finished, PagesWanted, Reply
from invariants.books.kinds import interval_of

from ..records import Pending
from .base import Fault, Player


class RanAhead(Fault):
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


KINDS = {"step ahead rejected": RanAhead()}
