"""The first event after which a core differs from the executable specification: in its outcomes, or
in what it remembers. So a wrong decision is found at its event, even if its consequences show much
later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.events import Event
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
# By the subject and what is known of it. A node is named by its namespace and all its rows.
Facts = dict[tuple[Any, ...], Any]


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
            wanted, seen = ("nothing" if each is None else brief(each) for each in pair)
            what = f"{differs}: expected {wanted}, found {seen}"
        self.first = f"event {self._events}: {what}" if what else ""


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
        comparisons.append(Comparison(tape.config))
        hand.observe(comparisons[0])

    outcome = replay(tape, ops, level, name, follow=follow, against=against)
    if outcome.failure is None:
        return outcome
    lines = outcome.failure.text.rstrip("\n").splitlines()
    at = len(lines) - (lines[-1:] != [] and lines[-1].startswith("replay: "))
    if comparisons[0].first:
        lines.insert(at, f"first difference from the specification: {comparisons[0].first}")
        at += 1
    if whole:
        lines[at:at] = ["operations:", *(f"    {entry}" for entry in tape.entries)]
    return replace(outcome, failure=replace(outcome.failure, text="\n".join(lines)))


def _differing(view: CoreView, cache: Cache) -> str:
    """The first fact that differs, in words; empty if none does."""
    ids: dict[bytes, int] = {}
    wanted, found = _specified(cache), _of_core(view, ids)
    for key in wanted | found:
        if wanted.get(key) != found.get(key):
            what, about, *where = key
            about = f"node {ids.get(about, 'that is not there')}" if what == "node" else about
            name = " ".join([str(about), *where])
            return f"{name}: expected {wanted.get(key)}, found {found.get(key)}"
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
        facts["node", path, "hits"] = node.hits
        for at, name in enumerate(view.config.components):
            facts["node", path, f"last use of {name}"] = node.last_use[at]
            for tier in TIERS:
                pages, locks = node.pages[tier][at], node.locks[tier][at]
                if pages is not None:
                    where = f"{name} on {tier.name.lower()}: pages, locked"
                    facts["node", path, where] = len(pages), bool(locks)
    for request in view.requests.values():
        computed = request.computed_tokens if request.admitted else None
        facts["request", f"request {request.id}", "computed tokens"] = computed
    for tier in TIERS:
        for pool in view.pools(tier):
            facts["pool", f"{tier.name.lower()} {pool.component}", "free pages"] = pool.free
    facts["flights", "actions", "in flight"] = len(view.flights)
    return facts


def _specified(cache: Cache) -> Facts:
    facts: Facts = {}
    paths: dict[object, bytes] = {}
    held = cache.held()
    for node in cache.nodes():
        head = paths.get(node.parent) or label_of(node.namespace, b"")
        path = paths[node] = head + b"".join(node.rows)
        facts["node", path, "hits"] = node.hits
        for at, kind in enumerate(cache.kinds):
            facts["node", path, f"last use of {kind.name}"] = node.last_use[at]
            for tier in TIERS:
                pages = node.copies[tier][at]
                if pages is not None:
                    where = f"{kind.name} on {tier.name.lower()}: pages, locked"
                    facts["node", path, where] = len(pages), not held.isdisjoint(pages)
    for number, request in cache.requests.items():
        computed = request.computed if request in cache.running else None
        facts["request", f"request {number}", "computed tokens"] = computed
    for tier in TIERS:
        for at, kind in enumerate(cache.kinds):
            name = f"{tier.name.lower()} {kind.name}"
            facts["pool", name, "free pages"] = cache.free(tier, at)
    facts["flights", "actions", "in flight"] = len(cache.flights) + len(cache.storage)
    return facts
