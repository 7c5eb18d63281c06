"""A request with a unique prompt takes pages, so that the pools are short for the others.

It stays and decodes until the run is healed, or finishes, and its backups evict other host pages.
"""

from __future__ import annotations

from hicache.core.actions import Prefill
from hicache.core.events import AdmitWanted, Arrived, ContinueWanted, Finished
from hicache.core.types import Tier
from invariants.books.kinds import kinds_of
from invariants.fuzz.hicache.faults.base import Player
from invariants.fuzz.records import Job, Pending

UNLIKE = 1 << 40
FIRST = 1 << 20
ONE_BY_ONE = 40  # pages of a component that are taken page by page; of more, several at a time
MOST_REQUESTS = 320  # that `leave` adds


def squeeze(hand: Player, percent: int, ends: bool) -> None:
    """Adds a request with `percent` of the available device pages."""
    pool = hand.core.view.pool(Tier.DEVICE)
    take(hand, max(1, (pool.free + pool.evictable) * percent // 100), ends)


def leave(hand: Player, component: str, pages: int) -> None:
    """Adds requests until at most `pages` device pages of a component are available. A request
    takes several states at a time, so fewer may be left. In a large pool with a small window more
    are left, since each request takes no more than a window.
    """
    if component not in hand.config.components:
        return
    at = hand.config.components.index(component)
    pool, room = hand.core.view.pool(Tier.DEVICE, at), hand.core.view.pool(Tier.DEVICE)
    most = kinds_of(hand.config)[at].need
    before = -1
    for _ in range(MOST_REQUESTS):
        if not pages < pool.free + pool.evictable != before or not room.free + room.evictable:
            return
        before = pool.free + pool.evictable
        lacking = before - pages
        take(hand, max(1, min(most, lacking // ONE_BY_ONE)) if at else lacking, False)


def take(hand: Player, pages: int, ends: bool) -> None:
    """Adds a decoding request with this many backbone pages, and the pages it needs of other
    components.
    """
    size = hand.config.page_size
    number = FIRST + len(hand.used)
    tokens = [UNLIKE + number] * (pages * size)
    hand.used.add(number)
    job = hand.jobs[number] = Job(number, tokens, "", len(tokens))
    if hand.content is not None:
        hand.content.extend(job.ids, "", tokens)
    hand.feed(Arrived(number, hand.key(job, len(tokens)), len(tokens), 0))
    hand.feed(AdmitWanted(number, len(tokens)))
    for _ in range(pages + 1):
        flying = next((one for one in hand.pending if _is_pass_of(one, number)), None)
        if flying is not None:
            hand.take(flying)
        if number not in hand.jobs or job.stage != "idle":
            break
        hand.feed(ContinueWanted(number, len(tokens)))
    if number not in hand.jobs:
        return  # a fault of its own pass has removed it
    if job.stage != "decoding":
        hand.abort(job)
    elif ends:
        hand.feed(Finished(number, hand.key(job, job.committed), job.committed))
        del hand.jobs[number]


def _is_pass_of(one: Pending, number: int) -> bool:
    return isinstance(one.action, Prefill) and one.action.request == number
