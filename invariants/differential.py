"""Compares a core with the executable specification while it runs.

Lives here: the observer, the failure that it raises, and what policies from outside of the project
declare. What is decided is in `invariants/spec`.
"""

from collections.abc import Sequence
from itertools import product

from hicache.core import entries
from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.eviction_policies import Facts
from hicache.core.types import Tier
from hicache.core.view import CoreView

from .base import SpecMismatch
from .orders import key_of_facts
from .shadow.story import brief, named_by
from .spec.kinds import ORDERS, OWN, WAITS, WRITES, Kind, Order, Policies, Writes
from .spec.lockstep import Differs, Lockstep

TIERS = (Tier.DEVICE, Tier.HOST)
SPEC_KIND = "SPEC "  # how the kinds of these failures begin


def lockstep_of(config: Config) -> Lockstep | None:
    """A specification to compare a core with; None for an eviction policy that declares no
    order."""
    order = order_of(config.eviction_policy)
    if order is None:
        return None
    writes, waits = WRITES.get(config.write_policy), WAITS.get(config.prefetch_policy)
    if writes is None:
        message = entries.load(entries.WRITE_POLICIES, config.write_policy)()
        writes = Writes(message.threshold, message.on_evict, not message.contiguous)
    if waits is None:
        waits = entries.load(entries.PREFETCH_POLICIES, config.prefetch_policy)().waits
    kinds = {}
    for name in {*config.components} - {*OWN}:
        made = entries.load(entries.COMPONENTS, name)(config)
        kinds[name] = Kind(name, made.positional, made.window_pages, made.interval, made.per_path)
    return Lockstep(config, Policies(writes, order, waits, kinds))


def order_of(name: str) -> Order | None:
    """What an eviction policy compares: of one from outside of the project, what it declares. None
    if it declares nothing."""
    if name in ORDERS:
        return ORDERS[name]
    policy = entries.load(entries.EVICTION_POLICIES, name)()
    key = key_of_facts(policy)
    if key is None:
        return None
    return Order(lambda copy: key(Facts(*copy)), policy.whole_path)


class DifferentialChecker:
    """Observes one core. Raises SpecMismatch at the first difference. After each event it also
    compares what no outcome tells: the pages that storage did not deliver, and the free and the
    available pages of one pool, of each in turn, or of every pool.

    most_pages: the comparison ends for good when the pools of full attention have more pages in
    use. The specification is written for reading, so an event takes it as long as the tree is
    large. compared: the number of events that were compared. unspecified: in words, why none are.
    """

    def __init__(
        self, config: Config, most_pages: int | None = None, every_pool: bool = False
    ) -> None:
        self.lockstep = lockstep_of(config)
        self.most_pages, self.every_pool = most_pages, every_pool
        self.pools = list(product(range(len(config.components)), TIERS))
        self.compared = 0
        self.unspecified = ""
        if self.lockstep is None:
            self.unspecified = f"policy {config.eviction_policy} declares no order of evictions"

    def on_event(self, event: Event, view: CoreView) -> None:
        """Nothing is compared before the core has answered."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if self.lockstep is None:
            return
        try:
            self.lockstep.compare(event, outcomes)
        except Differs as difference:
            raise _mismatch(event, difference, self.lockstep) from None
        self.compared += 1
        turn, cache = self.lockstep.events, self.lockstep.specification.cache
        known, others = cache.distrusted, view.distrusted
        if (known or others) and sorted(known) != sorted(others):
            raise SpecMismatch(
                f"{SPEC_KIND}distrusted pages",
                f"{brief(event)}\n    pages that storage did not deliver: expected {len(known)}, "
                f"found {len(others)}",
                named_by(event),
            )
        pools = self.pools if self.every_pool else [self.pools[turn % len(self.pools)]]
        for kind, tier in pools:
            pool = view.pool(tier, kind)
            counted, counts = (pool.free, pool.available), cache.counts(tier, kind)
            for name, expected, number in zip(("free", "available"), counts, counted, strict=True):
                if number != expected:
                    where = f"{name} {tier.name.lower()} pages of {pool.component}"
                    raise SpecMismatch(
                        f"{SPEC_KIND}{name} pages",
                        f"{brief(event)}\n    {where}: expected {expected}, found {number}",
                        [*named_by(event), About("pool", -1, int(tier), pool.component)],
                    )
        if self.most_pages is not None and _used(view) > self.most_pages:
            self.lockstep = None


def _used(view: CoreView) -> int:
    pools = [view.pool(tier, 0) for tier in TIERS]
    return sum(pool.capacity - pool.free for pool in pools)


def _mismatch(event: Event, difference: Differs, lockstep: Lockstep) -> SpecMismatch:
    """The failure, in the core's page and transfer numbers."""
    expected, result = lockstep.in_numbers_of_core(difference.expected), difference.actual
    whose = expected if expected is not None else result
    kind = "KV events" if whose is None else type(whose).__name__
    lines = [f"{brief(event)}: {difference}"]
    if expected is not None or result is not None:
        lines.append(f"expected {brief(expected) if expected is not None else 'none'}")
        lines.append(f"found    {brief(result) if result is not None else 'none'}")
    about = [
        value for item in (event, expected, result) if item is not None for value in named_by(item)
    ]
    text = "\n    ".join(lines)
    whom = list(dict.fromkeys(about))
    return SpecMismatch(SPEC_KIND + kind, text, whom, difference.at, expected, result)
