"""What each kind of attention requires of a prefix, and what each policy says: the constants of the
rules.

    full     every page of the prefix
    swa      the pages that hold the last `window` tokens of the prefix
    mamba    one state, at exactly the end of the prefix

    write policy     when a copy to host begins             eviction policy    what goes first
    prefetch policy  whether an admission waits for the request's prefetch
"""

from collections.abc import Callable
from typing import NamedTuple

from hicache.core.config import Config

OWN = ("full", "swa", "mamba")  # the kinds whose rules stand here
FULL = 0  # every node has full attention; the other kinds come after it
FOREVER = 1 << 62
PROTECTED_HITS = 2  # slru: more uses than this count as this many


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


class Facts(NamedTuple):
    """What an eviction policy may compare of a copy. depth: of full attention 0."""

    last_use: int
    inserted: int
    hits: int
    priority: int
    depth: int


class Order(NamedTuple):
    """key: the copy with the smallest goes first. whole_path: whether a request uses every kind on
    its whole path."""

    key: Callable[[Facts], tuple[int, ...]]
    whole_path: bool = False


class Policies(NamedTuple):
    """What the policies of a configuration declare, and the components from outside. waits: whether
    an admission waits for the request's prefetch."""

    writes: Writes
    order: Order
    waits: bool
    kinds: dict[str, Kind]


def kinds_of(config: Config, declared: dict[str, Kind]) -> tuple[Kind, ...]:
    settings = {setting.component: setting for setting in config.settings}
    kinds = []
    for name in config.components:
        own, page = settings.get(name), config.page_size
        if name == "full":
            kinds.append(Kind(name, True, FOREVER, page))
        elif name == "swa":
            kinds.append(Kind(name, True, -(-getattr(own, "window_tokens", 1) // page), page))
        elif name == "mamba":
            interval, states = (
                getattr(own, "interval_tokens", 0),
                getattr(own, "states_per_path", 0),
            )
            kinds.append(Kind(name, False, 1, interval or page, states))
        else:
            kinds.append(declared[name])
    return tuple(kinds)


ORDERS = {
    "lru": Order(lambda copy: (copy.last_use,)),
    "lru_path": Order(lambda copy: (copy.last_use, copy.depth), whole_path=True),
    "fifo": Order(lambda copy: (copy.inserted,)),
    "lfu": Order(lambda copy: (copy.hits, copy.last_use)),
    "slru": Order(lambda copy: (min(copy.hits, PROTECTED_HITS), copy.last_use)),
    "priority": Order(lambda copy: (copy.priority, copy.last_use)),
}
