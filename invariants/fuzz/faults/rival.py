"""Another request arrives with the prefix that is being loaded or computed."""

from __future__ import annotations

from hicache.core.actions import Backup
from hicache.core.events import AdmitWanted, Arrived

from ..records import Job, Pending
from .aborts import job_of
from .base import Fault, Player

FIRST = 1 << 21


class Rival(Fault):
    sites = ("Load", "Prefill")

    def issued(self, hand: Player, one: Pending) -> None:
        first = job_of(hand, one)
        if first is None or isinstance(one.action, Backup):
            return
        number = FIRST + len(hand.used)
        hand.used.add(number)
        size = first.prompt
        job = hand.jobs[number] = Job(number, first.tokens[:size], first.namespace, size)
        if hand.content is not None:
            hand.content.extend(job.ids, job.namespace, job.tokens)
        most = (size - 1) // hand.config.page_size
        hand.feed(Arrived(number, hand.key(job, size), size, most))
        hand.feed(AdmitWanted(number, size))


KINDS = {"rival for the same prefix": Rival()}
