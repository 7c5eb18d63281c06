"""Several ranks: one core per rank with the same events, and delays and failures of its own.

Rank 0 is the hand's core, which the checks watch. Each event goes to all ranks: their answers, what
it changed and the pools must be the same, and at times the whole trees. Replies go through
`hicache.runtime.agreement` in lockstep: one is delivered when all ranks have it.

For the n-th action of an entry, rank r uses the delay, the tie and the fault of act n + r, so an
entry with one act has equal ranks. Hooks of a fault other than time and success run only for rank
0's act. Every rank has contents of its own. Its copies and passes end with its own result, whatever
the ranks agreed on, so an agreement that ignores a rank leads to wrong content.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hicache.core.actions import Action, Evicted, Lookup, Outcome, Prefill, StorageAction
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import About
from hicache.core.events import Event, LookupDone, Reply, StorageReply
from hicache.core.radix.node import Node
from hicache.core.types import FlightId, Tier
from hicache.core.view import CoreView
from hicache.runtime import agreement
from hicache.runtime.agreement import REPLIES, Agreement
from hicache.runtime.decisions import Decisions
from hicache.runtime.driver import Driver
from hicache.runtime.group import Diverged, local_groups, lockstep
from hicache.runtime.restorable import LookedUp
from invariants.books.story import named_by
from invariants.fuzz.hicache.content import Arrives, Content
from invariants.fuzz.hicache.faults.base import LOST, Fault, kind_of
from invariants.fuzz.hicache.faults.plain import lane_of
from invariants.fuzz.hicache.hand import PLAIN, Hand
from invariants.fuzz.hicache.shelf import Shelf
from invariants.fuzz.records import Pending
from invariants.watch import Watch

LOOK_EVERY = 16
FORCED = -1  # due regardless of delays


class Fate(NamedTuple):
    """The result of one action on one rank."""

    due: int
    kind: Fault


class Local:
    """The executor of one rank: each action ends at the time of its fate. shelf: its storage."""

    def __init__(self, rank: int, hand: RankedHand) -> None:
        self.rank = rank
        self.shelf = Shelf(hand.config) if rank else hand.shelf
        self.offers: dict[FlightId, set[int]] = {}  # by lookup, which replies are right here
        self._hand = hand
        self._open: dict[FlightId, Action] = {}

    def submit(self, action: Action) -> None:
        self._open[action.flight] = action

    def abandon(self, flight: FlightId) -> None:
        """The action ends now, unless its end is lost on this rank."""
        fates, now = self._hand.fates.get(flight), self._hand.now
        if fates and fates[self.rank].due < LOST:
            fates[self.rank] = fates[self.rank]._replace(due=min(fates[self.rank].due, now))

    def start(self) -> None:
        """Does nothing: actions start when they are submitted."""

    def poll(self) -> list[Reply]:
        ended = [action for action in self._open.values() if self._is_due(action)]
        for action in ended:
            del self._open[action.flight]
        return [self._reply(action) for action in ended]

    def fine(self, action: Action) -> bool:
        """Whether the action succeeded on this rank; a pass needs its loads."""
        after = action.after if isinstance(action, Prefill) else ()
        fates = [self._hand.fates[flight][self.rank] for flight in (action.flight, *after)]
        return all(fate.kind.fine for fate in fates)

    def _is_due(self, action: Action) -> bool:
        due, slow = self._hand.fates[action.flight][self.rank].due, self._hand.slow
        until = max(slow.get(type(action).__name__, 0), slow.get(lane_of(self.rank), 0))
        return due == FORCED or max(due, until) <= self._hand.now

    def _reply(self, action: Action) -> Reply:
        if not isinstance(action, StorageAction):
            return REPLIES[type(action)](action.flight, self.fine(action))
        kind, hand = self._hand.fates[action.flight][self.rank].kind, self._hand
        reply = self.shelf.reply(action, kind, hand.now, hand.shards[self.rank])
        if not isinstance(action, Lookup):
            return reply
        pages = reply[1]
        offers = {end for end in self.shelf.boundaries(action) if end < pages} | {pages} - {0}
        self.offers[action.flight] = offers
        return LookedUp(action.flight, sum(1 << end - 1 for end in offers))


class RankedHand(Hand):
    """Plays on one core per rank. shards: the contents of each rank's pages."""

    def __init__(
        self,
        config: Config,
        order: str = "time",
        watch: Watch | None = None,
        ranks: int = 2,
        pairs: bool = False,
    ) -> None:
        super().__init__(config, order, watch, pairs=pairs)
        self.fates: dict[FlightId, list[Fate]] = {}
        self.content = content = Shards(config, self, pairs)
        self.shards: list[Content] = [content, *content.others(ranks - 1)]
        groups = local_groups(ranks)
        self.locals = [Local(rank, self) for rank in range(ranks)]
        self.agreements = [
            Agreement(local, group) for local, group in zip(self.locals, groups, strict=True)
        ]
        turns = [
            agreement.agree_on_settings(_offered(config, rank), group)
            for rank, group in enumerate(groups)
        ]
        self.drivers = [
            Driver(Core(agreed), executor)
            for agreed, executor in zip(lockstep(turns)[1:], self.agreements[1:], strict=True)
        ]
        self._agreed: deque[Reply] = deque()  # not delivered yet
        self._replies: dict[FlightId, Reply] = {}

    def feed(self, event: Event) -> list[Outcome]:
        """Feeds the event to all ranks. Raises Diverged if they differ then."""
        outcomes = super().feed(event)
        for rank, driver in enumerate(self.drivers, 1):
            theirs = driver.feed(event)
            compare_outcomes(rank, event, outcomes, theirs)
            for item in theirs:
                if isinstance(item, Prefill):
                    self._begin(rank, item)
            compare_states(rank, f"after {event}", self.core.view, driver.core.view)
        if self.events % LOOK_EVERY == 0:
            self.look()
        return outcomes

    def look(self) -> None:
        """Compares the whole trees."""
        for rank, driver in enumerate(self.drivers, 1):
            compare_states(rank, "at a look", self.core.view, driver.core.view, whole=True)

    def see(self, item: Outcome) -> None:
        super().see(item)
        if isinstance(item, StorageAction):
            for local, content in zip(self.locals[1:], self.shards[1:], strict=True):
                local.shelf.begin(item, content)

    # -- actions

    def submit(self, action: Action) -> None:
        """Submits an action on all ranks; it ends when it has ended on all."""
        turn, acts, site = self._turn, self.acts or (PLAIN,), type(action).__name__
        super().submit(action)
        pending = self.pending[-1]
        fates = [Fate(pending.due, kind_of(acts[turn % len(acts)].fault, site))]
        for rank in range(1, len(self.locals)):
            act = acts[(turn + rank) % len(acts)]
            kind = kind_of(act.fault, site)
            fates.append(Fate(kind.due(self, self.now + self.schedule.later(act.delay)), kind))
            if act.fault and site in kind.sites:
                self.counts[f"fault {act.fault} {site} on one rank"] += 1
        self.fates[action.flight] = fates
        self._begin(0, action)
        lanes = (site, *map(lane_of, range(len(self.locals))))
        due = max([fate.due for fate in fates] + [self.slow.get(lane, 0) for lane in lanes])
        self.pending[-1] = pending._replace(due=due)

    def _begin(self, rank: int, action: Action) -> None:
        """Starts an action on a rank whose driver does not start it."""
        self.agreements[rank].begin(action)
        self.locals[rank].submit(action)

    def abandon(self, flight: int) -> None:
        super().abandon(flight)
        self.locals[0].abandon(flight)

    # -- replies

    def take_due(self) -> int:
        """Delivers all replies that every rank has, and those that follow. Returns their number."""
        taken = 0
        if self.blind:
            self.blind -= 1
            return 0
        while True:
            self._agree()
            if not self._agreed:
                return taken
            while self._agreed:
                self._deliver()
                taken += 1

    def take(self, one: Pending) -> None:
        """Forces the end of this action, and of earlier ones of its kind, on every rank, and
        delivers the replies."""
        for other in self.pending:
            if type(other.action) is type(one.action) and other.number <= one.number:
                fates = self.fates[other.number]
                self.fates[other.number] = [fate._replace(due=FORCED) for fate in fates]
        self._agree()
        while any(other.number == one.number for other in self.pending):
            assert self._agreed, f"flight {one.number} was forced, and not all ranks have its end"
            self._deliver()

    def _deliver(self) -> None:
        reply = self._agreed.popleft()
        self._replies[reply.flight] = reply
        super().take(next(one for one in self.pending if one.number == reply.flight))
        self.finish()

    def _agree(self) -> None:
        lockstep([own.agree() for own in self.agreements])
        mine, *others = (own.poll() for own in self.agreements)
        for rank, theirs in enumerate(others, 1):
            if theirs != mine:
                about = [About("flight", reply.flight) for reply in mine]
                raise Diverged("replies", f"rank 0 has {mine}, rank {rank} has {theirs}", *about)
        for reply in mine:
            if isinstance(reply, LookupDone):
                self._check_prefix(reply)
            well = [fate.kind.fine for fate in self.fates[reply.flight]]
            self.probes.seen[f"{type(reply).__name__}: failed on one rank"] += len({*well}) > 1
        self._agreed.extend(mine)

    def _check_prefix(self, reply: LookupDone) -> None:
        """A lookup must find the longest prefix that every rank has offered."""
        offers = [local.offers.pop(reply.flight) for local in self.locals]
        longest = max(set.intersection(*offers), default=0)
        if reply.pages != longest:
            raise Diverged(
                "prefix",
                f"the ranks agree on {reply.pages} pages for flight {reply.flight}, expected "
                f"{longest}: by rank, they can restore {[sorted(ends) for ends in offers]}",
                About("flight", reply.flight),
            )

    def answer(self, action: StorageAction, kind: Fault) -> StorageReply:
        reply = self._replies[action.flight]
        assert isinstance(reply, StorageReply)
        return reply

    def went_well(self, one: Pending, fine: bool) -> bool:
        """The result that the ranks agreed on."""
        reply = self._replies[one.number]
        return isinstance(reply, StorageReply) or reply.ok


def _offered(config: Config, rank: int) -> Config:
    """The configuration that a rank can offer: each has a host page more than the one before."""
    pages = tuple(size + rank * bool(size) for size in config.host_pages)
    return replace(config, host_pages=pages) if config.has_host else config


class Shards(Content):
    """The contents of rank 0's pages, which passes everything on to those of the other ranks."""

    def __init__(self, config: Config, hand: RankedHand, pairs: bool) -> None:
        super().__init__(config, pairs)
        self._hand = hand
        self._others: list[Content] = []

    def others(self, count: int) -> list[Content]:
        self._others = [Content(self._hand.config, self._hand.pairs) for _ in range(count)]
        for other in self._others:
            other.ids, other.spelled = self.ids, self.spelled
        return self._others

    def see(self, item: Outcome) -> None:
        super().see(item)
        for other in self._others:
            other.see(item)

    def end_copy(
        self, flight: int, tier: Tier, ok: bool, arrives: Arrives = lambda at, count: False
    ) -> None:
        """Ends the copy on each rank with that rank's own result."""
        (_, mine), *fates = self._hand.fates[flight]
        super().end_copy(flight, tier, mine.fine, mine.arrives)
        for other, (_, kind) in zip(self._others, fates, strict=True):
            other.end_copy(flight, tier, kind.fine, kind.arrives)

    def end_pass(self, action: Prefill, ids: list[int] | None) -> None:
        mine, *others = (ids if local.fine(action) else None for local in self._hand.locals)
        super().end_pass(action, mine)
        for other, own in zip(self._others, others, strict=True):
            other.end_pass(action, own)

    def decode(self, request: int, ids: list[int], start: int, end: int) -> None:
        super().decode(request, ids, start, end)
        for other in self._others:
            other.decode(request, ids, start, end)

    def audit(self, view: CoreView) -> None:
        super().audit(view)
        for other in self._others:
            other.audit(view)


# -- what ranks have in common


def compare_outcomes(
    rank: int, event: Event, mine: Sequence[Outcome], theirs: Sequence[Outcome]
) -> None:
    """Raises Diverged for the first outcome that differs."""
    if _digest(mine) == _digest(theirs):
        return
    for at in range(max(len(mine), len(theirs))):
        pair = mine[at : at + 1], theirs[at : at + 1]
        if _digest(pair[0]) != _digest(pair[1]):
            first = [*pair[0], *pair[1]][0]
            raise Diverged(
                "victims" if isinstance(first, Evicted) else "outcomes",
                f"after {event}: rank 0 has {pair[0]}, rank {rank} has {pair[1]}",
                *named_by(first),
            )


def _digest(outcomes: Sequence[Outcome]) -> str:
    decisions = Decisions()
    decisions.add(outcomes)
    return decisions.digest()


def compare_states(
    rank: int, when: str, mine: CoreView, theirs: CoreView, whole: bool = False
) -> None:
    """Compares the pools, and the nodes that the last event changed, or all of them. Raises
    Diverged for the first fact that differs."""
    facts, others = _facts(mine, whole), _facts(theirs, whole)
    if facts == others:
        return
    key = next(key for key in facts | others if facts.get(key) != others.get(key))
    kind, about = ("tree", About("node", key[1])) if key[0] == "node" else ("pools", About(*key))
    text = f"{when}, {key}: rank 0 has {facts.get(key)}, rank {rank} has {others.get(key)}"
    raise Diverged(kind, text, about)


def _facts(view: CoreView, whole: bool) -> dict[tuple[Any, ...], Any]:
    """By About of a node or a pool, what ranks have in common of it."""
    nodes = {node.id: node for node in view.nodes()} if whole else view.touched
    facts: dict[tuple[Any, ...], Any] = {
        ("node", number): _of_node(node) for number, node in nodes.items()
    }
    for tier in (Tier.DEVICE, Tier.HOST):
        for pool in view.pools(tier):
            counts = (pool.capacity, pool.protected, *pool.counts)
            facts["pool", -1, int(tier), pool.component] = counts
    return facts


def _of_node(node: Node) -> tuple[Any, ...]:
    """Its place, its key, and by tier and component its pages and the number of its locks."""
    above = -1 if node.parent is None else node.parent.id
    pages = [[None if one is None else one.tolist() for one in side] for side in node.pages]
    return above, node.end_page, node.key, pages, [[*map(len, side)] for side in node.locks]
