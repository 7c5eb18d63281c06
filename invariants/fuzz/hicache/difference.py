"""The first event after which a core differs from the executable specification: in its outcomes, or
in what it remembers. So a wrong decision is found at its event, even if its consequences show much
later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hicache.core.actions import Outcome
from hicache.core.events import Event
from hicache.core.radix.tree import label_of
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.against import lockstep_of
from invariants.books.story import brief
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.play import replay
from invariants.fuzz.play import Outcome as Played
from invariants.fuzz.sequence import Operation, Tape
from invariants.spec.cache import Cache
from invariants.spec.lockstep import Differs
from invariants.watch import Level

TIERS = (Tier.DEVICE, Tier.HOST)
# By subject, what is known of it. A node is named by its namespace and all its rows.
Facts = dict[str | bytes, dict[str, Any]]


class Comparison:
    """Observes the core of a hand. first: the first difference in words; empty if there is none."""

    def __init__(self, hand: Hand) -> None:
        self.first = ""
        self._hand = hand
        self._lockstep = lockstep_of(hand.config)
        hand.observe(self)

    def on_event(self, event: Event, view: CoreView) -> None: ...

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if self._lockstep is None or self.first:
            return
        try:
            self._lockstep.compare(event, outcomes)
            what = _differing(view, self._lockstep.specification.cache)
        except Differs as differs:
            pair = differs.expected, differs.found
            wanted, seen = ("nothing" if each is None else brief(each) for each in pair)
            what = f"{differs}: expected {wanted}, found {seen}"
        self.first = f"event {self._hand.events}: {what}" if what else ""


def replay_told(
    tape: Tape,
    ops: dict[str, Operation],
    level: Level = "every",
    name: str = "",
    against: bool | None = None,
    whole: bool = False,
) -> Played:
    """Plays a tape as `replay` does. The text of a failure also has the first difference from the
    specification and, with `whole`, the operations of the tape."""
    comparisons: list[Comparison] = []

    def follow(hand: Hand) -> None:  # after the configuration was checked
        comparisons.append(Comparison(hand))

    outcome = replay(tape, ops, level, name, follow=follow, against=against)
    if outcome.failure is None:
        return outcome
    lines = outcome.failure.text.rstrip("\n").splitlines()
    at = len(lines) - (lines[-1:] != [] and lines[-1].startswith("replay: "))
    more = [f"first difference from the specification: {one.first}" for one in comparisons]
    if whole:
        more += ["operations:", *(f"    {entry}" for entry in tape.entries)]
    lines[at:at] = more if comparisons[0].first else more[1:]
    return replace(outcome, failure=replace(outcome.failure, text="\n".join(lines)))


def _differing(view: CoreView, cache: Cache) -> str:
    """The first fact that differs, in words; empty if none does."""
    ids: dict[bytes, int] = {}
    wanted, found = _specified(cache), _of_core(view, ids)
    for about in wanted | found:
        one, other = wanted.get(about, {}), found.get(about, {})
        for what in one | other:
            if one.get(what) != other.get(what):
                if isinstance(about, bytes):
                    about = f"node {ids.get(about, 'that is not there')}"
                return f"{about}: {what}: expected {one.get(what)}, found {other.get(what)}"
    return ""


def _of_core(view: CoreView, ids: dict[bytes, int]) -> Facts:
    """ids: gets the number of each node."""
    facts: Facts = {}
    paths: dict[int, bytes] = {}
    for node in view.nodes():
        above = node.parent
        assert above is not None
        row = len(node.key) // max(1, node.end_page - above.end_page)
        head = paths[above.id] if above.parent is not None else node.label[: len(node.label) - row]
        path = paths[node.id] = head + node.key
        ids[path] = node.id
        facts[path] = _of(node, node.pages, [[*map(bool, side)] for side in node.locks])
    for request in view.requests.values():
        computed = request.computed_tokens if request.admitted else "none yet"
        facts[f"request {request.id}"] = {"computed tokens": computed}
    for tier in TIERS:
        facts[tier.name.lower()] = {"free pages": [pool.free for pool in view.pools(tier)]}
    return facts | {"actions": {"in flight": len(view.flights)}}


def _specified(cache: Cache) -> Facts:
    facts: Facts = {}
    paths: dict[object, bytes] = {}
    held = cache.held()
    for node in cache.nodes():
        head = paths.get(node.parent) or label_of(node.namespace, b"")
        path = paths[node] = head + b"".join(node.rows)
        locked = [[not held.isdisjoint(own or ()) for own in side] for side in node.copies]
        facts[path] = _of(node, node.copies, locked)
    for number, request in cache.requests.items():
        computed = request.computed if request in cache.running else "none yet"
        facts[f"request {number}"] = {"computed tokens": computed}
    for tier in TIERS:
        free = [cache.free(tier, kind) for kind in range(len(cache.kinds))]
        facts[tier.name.lower()] = {"free pages": free}
    return facts | {"actions": {"in flight": len(cache.flights) + len(cache.storage)}}


def _of(node: Any, pages: Any, locked: list[list[bool]]) -> dict[str, Any]:
    """What is known of a node; by component, how many pages it has and whether they are locked."""
    facts = {"hits": node.hits, "last use": [*node.last_use]}
    for tier, side, locks in zip(TIERS, pages, locked, strict=True):
        pairs = zip(side, locks, strict=True)
        facts[f"pages on {tier.name.lower()}, and whether they are locked"] = [
            None if own is None else (len(own), lock) for own, lock in pairs
        ]
    return facts
