"""The first event after which a core differs from the executable specification: in its outcomes, or
in what it remembers.

Outcomes are compared as the fuzzer compares them. Of what both remember this is compared: the tree,
which copies and locks its nodes have, how they were used, requests, flights and free pages. So a
wrong decision is found at its event, even if its consequences show much later.

Lives here: both sets of facts, and the first difference. Does not say who is at fault (see
suspects).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hicache.core.actions import Evicted, KvStored, Outcome, StateSlots
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.radix.node import FlightKind, Node
from hicache.core.radix.tree import label_of
from hicache.core.types import Tier
from hicache.core.view import CoreView

from ..against import lockstep_of
from ..books.story import brief, named_by
from ..fuzz.hand import Hand
from ..spec.cache import Cache
from ..spec.lockstep import Differs

MOST_ABOUT = 6
PAGED = ("tables", "states", "copies")  # fields with page numbers
TIERS = (Tier.DEVICE, Tier.HOST)


class Fact(NamedTuple):
    """What a fact is about. path: of a node, its namespace and all rows above and in it. number: of
    a request.
    """

    what: str
    path: bytes = b""
    number: int = -1
    tier: int = -1
    component: str = ""


Facts = dict[Fact, object]


class Difference(NamedTuple):
    """event: its number, from 1. what: what differs, in words. text: the outcomes, if these differ.
    about: whom. makes: the kind of the outcome
    that differs, "" if none does. fields: of this outcome, those that differ; empty if it is
    missing or one too many.
    """

    event: int
    what: str
    text: str
    about: tuple[About, ...]
    makes: str = ""
    fields: tuple[str, ...] = ()


class Comparison:
    """Observes one core. first: the first difference, if there is one."""

    def __init__(self, config: Config) -> None:
        self.first: Difference | None = None
        self._events = 0
        self._lockstep = lockstep_of(config)

    def follow(self, hand: Hand) -> None:
        hand.observe(self)

    def on_event(self, event: Event, view: CoreView) -> None:
        self._events += 1

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if self._lockstep is None or self.first is not None:
            return
        told: Differs | None = None
        try:
            self._lockstep.compare(event, outcomes)
        except Differs as difference:
            told = difference
        differ = _differing(view, self._lockstep.specification.cache)
        if told is not None:
            about = [*_named(told), *(one for _, one in differ), *named_by(event)]
            wanted, found = (
                brief(one) if one is not None else "nothing" for one in (told.expected, told.found)
            )
            text = f"expected {wanted}, found {found}"
            makes, fields = _made(told, outcomes)
            named = tuple(dict.fromkeys(about))[:MOST_ABOUT]
            self.first = Difference(self._events, str(told), text, named, makes, fields)
        elif differ:
            about = [*(one for _, one in differ), *named_by(event)]
            named = tuple(dict.fromkeys(about))[:MOST_ABOUT]
            self.first = Difference(self._events, differ[0][0], "", named)


def _made(told: Differs, outcomes: Sequence[Outcome]) -> tuple[str, tuple[str, ...]]:
    """The kind of the outcome that is missing, one too many or different, and its fields that
    differ.
    """
    expected, found = told.expected, told.found
    if expected is None and found is None:
        return KvStored.__name__, ()
    if expected is None or type(expected) in {type(one) for one in outcomes[told.at + 1 :]}:
        return type(found if found is not None else expected).__name__, ()
    if found is None or type(expected) is not type(found):
        return type(expected).__name__, ()
    pairs = zip(expected._fields, expected, found, strict=True)
    differ = tuple(name for name, one, other in pairs if _shape(one) != _shape(other))
    paged = tuple(name for name in PAGED if name in expected._fields)
    return type(expected).__name__, tuple(one for one in differ if one != "flight") or paged


def _shape(value: Any) -> Any:
    """A value without page numbers: for each page whether there is one."""
    if isinstance(value, np.ndarray):
        return [page >= 0 for page in value.tolist()]
    if isinstance(value, StateSlots):
        slots = (value.source, value.working, *value.checkpoint_slots)
        depths = [depth for depth, _ in value.checkpoints]
        return (value.component, value.interval, depths, [slot >= 0 for slot in slots])
    if isinstance(value, tuple):
        return [_shape(one) for one in value]
    return value


def _named(told: Differs) -> Iterator[About]:
    """Whom the differing outcomes name."""
    if isinstance(told.found, Evicted):
        tier, component = int(told.found.tier), told.found.component
        for page in told.found.pages.tolist()[:2]:
            yield About("page", page, tier, component)
    if isinstance(told.expected, Evicted):
        yield About("pool", -1, int(told.expected.tier), told.expected.component)
    if told.found is not None:
        yield from named_by(told.found)


def _differing(view: CoreView, cache: Cache) -> list[tuple[str, About]]:
    """Each fact that differs, in words, and whom it is about."""
    nodes = dict(_paths(view))
    wanted, found = _specified(cache), _of_core(view, nodes)
    ids = {path: node.id for path, node in nodes.items()}
    told = []
    for fact in sorted({*wanted, *found}, key=_order):
        one, other = wanted.get(fact), found.get(fact)
        if one == other:
            continue
        if fact.what in ("locked", "pages") and (fact.path not in ids or one is other is None):
            continue
        about = _about(fact, ids)
        side = {0: "device ", 1: "host "}.get(fact.tier, "") + fact.component
        words = f"{about.kind} {about.number}: " * (about.number >= 0) + f"{side} {fact.what}"
        told.append((f"{words.strip()}: expected {_said(one)}, found {_said(other)}", about))
    return told


_FIRST = ("in the tree", "pages", "locked", "free pages", "requests", "flights")


def _order(fact: Fact) -> tuple[int, Fact]:
    known = _FIRST.index(fact.what) if fact.what in _FIRST else len(_FIRST)
    return known, fact


def _said(value: object) -> str:
    return "none" if value is None else str(value)


def _about(fact: Fact, ids: dict[bytes, int]) -> About:
    if fact.path:
        return About("node", ids.get(fact.path, -1), fact.tier, fact.component)
    if fact.number >= 0:
        return About("request", fact.number)
    return About("pool", -1, fact.tier, fact.component)


def _paths(view: CoreView) -> Iterator[tuple[bytes, Node]]:
    """Each node with its namespace and all rows from the root to its end."""
    paths: dict[int, bytes] = {}
    for node in view.nodes():
        above = node.parent
        assert above is not None
        row = len(node.key) // max(1, node.end_page - above.end_page)
        head = paths[above.id] if above.parent is not None else node.label[: len(node.label) - row]
        paths[node.id] = head + node.key
        yield paths[node.id], node


def _of_core(view: CoreView, nodes: dict[bytes, Node]) -> Facts:
    facts: Facts = {}
    names = view.config.components
    for path, node in nodes.items():
        facts[Fact("in the tree", path)] = True
        for what in ("hits", "priority", "inserted"):
            facts[Fact(what, path)] = getattr(node, what)
        facts[Fact("failed stores", path)] = node.store_failures
        for at, name in enumerate(names):
            facts[Fact("last use", path, component=name)] = node.last_use[at]
            for tier in TIERS:
                pages = node.pages[tier][at]
                if pages is not None:
                    facts[Fact("pages", path, -1, tier, name)] = len(pages)
                    facts[Fact("locked", path, -1, tier, name)] = bool(node.locks[tier][at])
    for request in view.requests.values():
        facts[Fact("known", number=request.id)] = True
        if request.admitted:
            facts[Fact("computed tokens", number=request.id)] = request.computed_tokens
            facts[Fact("shared pages", number=request.id)] = request.shared_pages
            facts[Fact("filled pages", number=request.id)] = request.filled_pages
    for tier in TIERS:
        for pool in view.pools(tier):
            facts[Fact("free pages", b"", -1, tier, pool.component)] = pool.free
    kinds = [flight.kind for flight in view.flights.values()]
    for kind in FlightKind:
        facts[Fact(f"{kind}s in flight")] = kinds.count(kind)
    return facts


def _specified(cache: Cache) -> Facts:
    facts: Facts = {}
    paths: dict[object, bytes] = {}
    held = cache.held()
    for node in cache.nodes():
        above = node.parent
        head = paths.get(above) or label_of(node.namespace, b"")
        path = paths[node] = head + b"".join(node.rows)
        facts[Fact("in the tree", path)] = True
        for what in ("hits", "priority", "inserted"):
            facts[Fact(what, path)] = getattr(node, what)
        facts[Fact("failed stores", path)] = node.failures
        for at, kind in enumerate(cache.kinds):
            facts[Fact("last use", path, component=kind.name)] = node.last_use[at]
            for tier in TIERS:
                pages = node.copies[tier][at]
                if pages is not None:
                    facts[Fact("pages", path, -1, tier, kind.name)] = len(pages)
                    locked = not held.isdisjoint(pages)
                    facts[Fact("locked", path, -1, tier, kind.name)] = locked
    for number, request in cache.requests.items():
        facts[Fact("known", number=number)] = True
        if request in cache.running:
            facts[Fact("computed tokens", number=number)] = request.computed
            facts[Fact("shared pages", number=number)] = request.shared
            facts[Fact("filled pages", number=number)] = request.filled
    for tier in TIERS:
        for at, kind in enumerate(cache.kinds):
            facts[Fact("free pages", b"", -1, tier, kind.name)] = cache.free(tier, at)
    targets = [flight.to for flight in cache.flights.values()]
    for what, to in (
        (FlightKind.LOAD, Tier.DEVICE),
        (FlightKind.BACKUP, Tier.HOST),
        (FlightKind.PREFILL, None),
    ):
        facts[Fact(f"{what}s in flight")] = targets.count(to)
    for what in (FlightKind.LOOKUP, FlightKind.FETCH, FlightKind.STORE, FlightKind.DELETE):
        facts[Fact(f"{what}s in flight")] = len(cache.in_flight(str(what)))
    return facts
