"""Compares a core with the executable specification while it runs.

Lives here: the observer, the failure that it raises, and what policies from outside of the project
declare. What is decided is in `invariants/spec`.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from hicache.core import plugins
from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.eviction_policies import Facts, Term
from hicache.core.types import Tier
from hicache.core.view import CoreView
from sim.content import draw

from .base import SpecMismatch
from .shadow.story import brief, named_by
from .spec.kinds import ORDERS, OWN, WAITS, WRITES, Kind, Order, Policies, Writes
from .spec.lockstep import Differs, Lockstep

TIERS = (Tier.DEVICE, Tier.HOST)
WINDOW = 100  # events
PAGES_AT_ONCE = 512  # in use, up to which there is no pause; with twice as many, of a window
MOST_PAUSE = 40 * WINDOW
SPEC_KIND = "SPEC "  # how the kinds of these failures begin


def lockstep_of(config: Config, view: CoreView | None = None) -> Lockstep | None:
    """A specification to compare a core with, from the beginning or from the state of a view; None
    for an eviction policy that declares no order."""
    order = order_of(config.eviction_policy)
    if order is None:
        return None
    writes, waits = WRITES.get(config.write_policy), WAITS.get(config.prefetch_policy)
    if writes is None:
        message = plugins.load(plugins.WRITE_POLICIES, config.write_policy)()
        writes = Writes(message.threshold, message.on_evict, not message.contiguous)
    if waits is None:
        waits = plugins.load(plugins.PREFETCH_POLICIES, config.prefetch_policy)().waits
    kinds = {}
    for name in {*config.components} - {*OWN}:
        made = plugins.load(plugins.COMPONENTS, name)(config)
        kinds[name] = Kind(name, made.positional, made.window_pages, made.interval, made.per_path)
    return Lockstep(config, Policies(writes, order, waits, kinds), view)


def order_of(name: str) -> Order | None:
    """What an eviction policy compares: of one from outside of the project, what it declares. None
    if it declares nothing."""
    if name in ORDERS:
        return ORDERS[name]
    policy = plugins.load(plugins.EVICTION_POLICIES, name)()
    reference: Callable[[Facts], Sequence[int]] | None = getattr(policy, "reference", None)
    order: Sequence[Term] = getattr(policy, "order", ())
    terms = [(Facts._fields.index(term.fact), term.most) for term in order]
    if reference is not None:
        return Order(lambda copy: tuple(reference(Facts(*copy))), policy.whole_path)
    if not terms:
        return None
    return Order(lambda copy: tuple(min(copy[at], most) for at, most in terms), policy.whole_path)


class DifferentialChecker:
    """Observes one core. Raises SpecMismatch at the first difference.

    seed: draws windows of events, spread over the whole run, at both ends of which the whole state
    is compared. The specification takes as long as the cache is large, so the pauses between them
    are longer then. None: every event, free pages after it, and the whole state after each
    `every`-th. view: the state from which that begins.

    compared: the number of events that were compared. nodes, pages: the largest tree in which one
    was, and pages in use. unspecified: in words, why some or all are not.
    """

    def __init__(
        self,
        config: Config,
        seed: int | None = None,
        every: int = 1,
        view: CoreView | None = None,
    ) -> None:
        self.config, self.seed, self.every = config, seed, every
        self.lockstep = lockstep_of(config, view)
        self.compared = self.nodes = self.pages = 0
        self.unspecified = ""
        if self.lockstep is None:
            self.unspecified = f"policy {config.eviction_policy} declares no order of evictions"
        self._left = self._drawn = 0  # events of this window or pause; windows that began

    def on_event(self, event: Event, view: CoreView) -> None:
        if self.seed is not None and not self._left:
            self._left, self._drawn = WINDOW, self._drawn + 1
            self.lockstep = self._fit(lockstep_of, self.config, view)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self._left -= 1
        if self.lockstep is None:
            return
        try:
            self._fit(self.lockstep.compare, event, outcomes)
        except Differs as difference:
            raise _mismatch(event, difference, self.lockstep) from None
        self.compared += self.lockstep is not None
        if self.seed is None or not self._left:
            full = self.seed is not None or self.compared % self.every == 0
            self.compare_state(brief(event), named_by(event), view, full)
        if self.seed is not None and not self._left:
            more = max(0, self.pages - PAGES_AT_ONCE)
            if self.lockstep is not None:
                self.lockstep.cache.forget()
            self.lockstep, mean = None, min(MOST_PAUSE, WINDOW * more // PAGES_AT_ONCE)
            self._left = mean // 2 + draw(mean + 1, self.seed, "windows", self._drawn)

    def _fit(self, work: Callable[..., Any], *args: object) -> Any:
        """What the work returns. None if the core of a window shows what no specification knows:
        the rest of that window is not judged."""
        try:
            return work(*args)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if self.seed is None:
                raise
            self.lockstep = None
            what = f"{type(error).__name__}: {error}"
            self.unspecified = f"a window whose state fits no specification ({what})"

    def compare_state(
        self, after: str, about: Sequence[About], view: CoreView, full: bool = True
    ) -> None:
        """Compares what no outcome tells, or free pages alone. after, about: what, to whom."""
        if self.lockstep is None:
            return
        pages, cache = 0, self.lockstep.cache
        for kind, tier in product(range(len(self.config.components)), TIERS):
            pool = view.pool(tier, kind)
            pages += pool.capacity - pool.free
            counts = cache.counts(tier, kind), (pool.free, pool.available)
            for name, expected, number in zip(("free", "available"), *counts, strict=True):
                if number != expected:
                    where = f"{name} {tier.name.lower()} pages of {pool.component}"
                    text = f"{after}\n    {where}: expected {expected}, found {number}"
                    place = About("pool", -1, int(tier), pool.component)
                    raise SpecMismatch(f"{SPEC_KIND}{name} pages", text, [*about, place])
        if full and (differs := self._fit(self.lockstep.state_differs, view)):
            (what, number), text = differs
            about = [*about, About(what, number)] if number >= 0 else about
            raise SpecMismatch(f"{SPEC_KIND}{what}", f"{after}\n    {text}", about)
        self.nodes, self.pages = max(self.nodes, len(cache.nodes)), max(self.pages, pages)


def _mismatch(event: Event, difference: Differs, lockstep: Lockstep) -> SpecMismatch:
    """The failure, in the core's page and transfer numbers."""
    expected, actual = lockstep.in_numbers_of_core(difference.expected), difference.actual
    both = [item for item in (expected, actual) if item is not None]
    text = f"{brief(event)}: {difference}"
    if both:
        text += f"\n    expected {brief(expected) if expected is not None else 'none'}"
        text += f"\n    found    {brief(actual) if actual is not None else 'none'}"
    about = [*dict.fromkeys(value for item in (event, *both) for value in named_by(item))]
    kind = SPEC_KIND + (type(both[0]).__name__ if both else "KV events")
    return SpecMismatch(kind, text, about, difference.at, expected, actual)
