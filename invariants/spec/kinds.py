"""What each kind of attention requires of a prefix, and what each policy says: the constants of the
rules.

    full     every page of the prefix
    swa      the pages that hold the last `window` tokens of the prefix
    mamba    one state, at exactly the end of the prefix

    write policy     when a copy to host begins             eviction policy    what goes first
    prefetch policy  whether an admission waits for the request's prefetch
"""

from __future__ import annotations

from typing import NamedTuple

from hicache.core.config import Config

FULL = 0  # every node has full attention; the other kinds come after it
FOREVER = 1 << 62
POSITIONS = 1024  # tokens to which the cost by position applies


class Kind(NamedTuple):
    """One component of the model.

    per_page     whether a node has one page of it for each page of its run; otherwise it has one
                 state, at its end.
    window       how many pages right above a boundary the boundary requires.
    interval     tokens between depths at which it can have a boundary.
    states       the largest number of states on one path; 0 means no limit.
    """

    name: str
    per_page: bool
    window: int
    interval: int
    states: int = 0


class Writes(NamedTuple):
    """uses: uses of a node from which on it is copied to host; 0 means never. before_eviction:
    whether a copy is made when the device pages are wanted. gaps: whether a node may be on host
    without its parent."""

    uses: int
    before_eviction: bool
    gaps: bool


WRITES = {
    "write_through": Writes(1, False, False),
    "write_through_selective": Writes(2, False, False),
    "write_back": Writes(0, True, True),
}

WAITS = {"best_effort": False, "wait_complete": True, "timeout": True}

# The facts that are compared, in turn; the copy with the smallest values is evicted first.
ORDERS = {
    "lru": ("last_use",),
    "lru_path": ("last_use", "depth"),
    "fifo": ("inserted",),
    "lfu": ("hits", "last_use"),
    "slru": ("reused", "last_use"),
    "priority": ("priority", "last_use"),
    "sieve": (),  # see cache.Cache.rank
    "cost_aware": ("worth", "last_use"),
    "s3_fifo": ("place",),  # on device, see second_chance
}


def kinds_of(config: Config) -> tuple[Kind, ...]:
    settings = {one.component: one for one in config.settings}
    kinds = []
    for name in config.components:
        told, page = settings.get(name), config.page_size
        if name == "full":
            kinds.append(Kind(name, True, FOREVER, page))
        elif name == "swa":
            tokens: int = getattr(told, "window_tokens", 1)
            kinds.append(Kind(name, True, -(-tokens // page), page))
        else:
            interval: int = getattr(told, "interval_tokens", 0)
            kinds.append(
                Kind(name, False, 1, interval or page, getattr(told, "states_per_path", 0))
            )
    return tuple(kinds)


def is_specified(config: Config) -> bool:
    """Whether the rules cover this configuration: its order of eviction, its prefetch policy and
    its kinds of attention. They cover every write policy, whose data a caller may give."""
    return (
        config.eviction_policy in ORDERS
        and config.prefetch_policy in WAITS
        and {"full", "swa", "mamba"} >= set(config.components)
    )


def lap_of(age: tuple[int, ...], visits: int, inserted: int, earlier: int) -> int:
    """sieve: the lap in which the hand evicts a copy. The hand goes from what was inserted first to
    what was inserted last, and begins the next lap; it spares what was visited since it was there.
    age: where the hand was at the last visit, or when the node came. earlier: when the node before
    it came."""
    lap, hand = age or (0, -1)
    if visits:
        return lap + (1 if inserted > hand else 2)
    return lap + (hand >= earlier)  # the hand begins again once the newest has gone


def cost_of(config: Config, kind: Kind, end: int) -> int:
    """What it costs to compute the page that ends at this depth again, and for a state all pages up
    to it: so much for each token, and more for those far from the beginning."""
    far = config.recompute_position_cost * end * config.page_size // POSITIONS
    page = config.recompute_token_cost + far
    return page if kind.per_page else page * end
