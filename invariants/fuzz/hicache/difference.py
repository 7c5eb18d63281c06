"""The first event after which a core differs from the executable specification: in its outcomes, or
in what it remembers.

Of what both remember this is compared: the tree, which copies and locks its nodes have, how they
were used, requests, flights and free pages. So a wrong decision is found at its event, even if its
consequences show much later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.events import Event
from hicache.core.radix.node import FlightKind, Node
from hicache.core.radix.tree import label_of
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.against import lockstep_of
from invariants.books.story import brief
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.ops.base import Operation
from invariants.fuzz.hicache.play import Outcome as Played
from invariants.fuzz.hicache.play import replay
from invariants.fuzz.sequence import Tape
from invariants.spec.cache import Cache
from invariants.spec.lockstep import Differs
from invariants.watch import Level

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


class Comparison:
    """Observes one core. first: the first difference in words, after its event; empty if there is
    none."""

    def __init__(self, config: Config) -> None:
        self.first = ""
        self._events = 0
        self._lockstep = lockstep_of(config)

    def on_event(self, event: Event, view: CoreView) -> None:
        self._events += 1

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if self._lockstep is None or self.first:
            return
        try:
            self._lockstep.compare(event, outcomes)
            what = _differing(view, self._lockstep.specification.cache)
        except Differs as differs:
            pair = differs.expected, differs.found
            wanted, found = ("nothing" if one is None else brief(one) for one in pair)
            what = f"{differs}: expected {wanted}, found {found}"
        self.first = f"event {self._events}: {what}" if what else ""


def replay_told(
    tape: Tape,
    ops: dict[str, Operation],
    level: Level = "every",
    name: str = "",
    against: bool | None = None,
    whole: bool = False,
) -> Played:
    """Plays a tape as `replay` does. The text of a failure also tells the first difference from the
    specification and, with `whole`, the operations of the tape."""
    comparisons: list[Comparison] = []

    def follow(hand: Hand) -> None:  # after the configuration was checked
        comparisons.append(Comparison(tape.config))
        hand.observe(comparisons[0])

    outcome = replay(tape, ops, level, name, follow=follow, against=against)
    if outcome.failure is None:
        return outcome
    lines = outcome.failure.text.rstrip("\n").splitlines()
    at = len(lines) - (lines[-1:] != [] and lines[-1].startswith("replay: "))
    firsts = [one.first for one in comparisons if one.first]
    more = [f"first difference from the specification: {first}" for first in firsts]
    if whole:
        more += ["operations:", *(f"    {entry}" for entry in tape.entries)]
    text = "\n".join([*lines[:at], *more, *lines[at:]])
    return replace(outcome, failure=replace(outcome.failure, text=text))


def _differing(view: CoreView, cache: Cache) -> str:
    """The first fact that differs, in words; empty if none does."""
    nodes = dict(_paths(view))
    wanted, found = _specified(cache), _of_core(view, nodes)
    ids = {path: node.id for path, node in nodes.items()}
    for fact in sorted({*wanted, *found}, key=_order):
        one, other = wanted.get(fact), found.get(fact)
        if one == other:
            continue
        if fact.what in ("locked", "pages") and (fact.path not in ids or one is other is None):
            continue
        side = {0: "device ", 1: "host "}.get(fact.tier, "") + fact.component
        words = f"{_whom(fact, ids)}{side} {fact.what}".strip()
        return f"{words}: expected {_said(one)}, found {_said(other)}"
    return ""


_FIRST = ("in the tree", "pages", "locked", "free pages", "requests", "flights")


def _order(fact: Fact) -> tuple[int, Fact]:
    known = _FIRST.index(fact.what) if fact.what in _FIRST else len(_FIRST)
    return known, fact


def _said(value: object) -> str:
    return "none" if value is None else str(value)


def _whom(fact: Fact, ids: dict[bytes, int]) -> str:
    if fact.path:
        return f"node {ids[fact.path]}: " if fact.path in ids else ""
    return f"request {fact.number}: " if fact.number >= 0 else ""


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
