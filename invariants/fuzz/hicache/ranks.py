"""Several ranks: one core per rank with the same events, and delays and failures of its own.

Rank 0 is the hand's core, which the checks watch. Each event goes to all ranks: their outcomes
and the pools must be the same. Replies go through
`hicache.runtime.ranks` in lockstep: one is delivered when all ranks have it, it is good if it
is good on all, and a lookup finds the longest prefix that all offer.

For the n-th action of an entry, rank r uses the delay, the tie and the fault of act n + r, so an
entry with one act has equal ranks. Hooks of a fault other than time and success run only for rank
0's act. Every rank has a storage of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hicache.core.actions import Action, Evicted, Lookup, Outcome, Prefill, StorageAction
from hicache.core.core import Core
from hicache.core.errors import About
from hicache.core.events import Event, LookupDone, Reply, StorageReply
from hicache.core.types import FlightId, Tier
from hicache.core.view import CoreView
from hicache.runtime import ranks as runtime_ranks
from hicache.runtime.driver import Driver
from hicache.runtime.encoding import outcome_bytes
from hicache.runtime.ranks import REPLIES, Agreement, Diverged, LookedUp, local_groups, lockstep
from invariants.books.story import named_by
from invariants.fuzz.hicache.hand import LOST, PLAIN, Fault, Hand, kind_of
from invariants.fuzz.hicache.shelf import Shelf
from invariants.fuzz.records import Pending
from invariants.fuzz.sequence import Tape
from invariants.watch import Watch

FORCED = -1  # due regardless of delays


class Fate(NamedTuple):
    """When one action ends on one rank, and how."""

    due: int
    kind: Fault


class Local:
    """The executor of one rank: each action ends at the time of its fate."""

    def __init__(self, rank: int, hand: RankedHand) -> None:
        self.rank, self._hand = rank, hand
        self.shelf = Shelf(hand.config) if rank else hand.shelf
        self.offers: dict[FlightId, set[int]] = {}  # by lookup, which replies are right here
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
        return self._hand.fates[action.flight][self.rank].due <= self._hand.now

    def _reply(self, action: Action) -> Reply:
        if not isinstance(action, StorageAction):
            return REPLIES[type(action)](action.flight, self.fine(action))
        kind = self._hand.fates[action.flight][self.rank].kind
        reply = self.shelf.reply(action, kind)
        if not isinstance(action, Lookup):
            return reply
        ends = {end for end in self.shelf.boundaries(action) if end < reply[1]} | {reply[1]} - {0}
        self.offers[action.flight] = ends
        return LookedUp(action.flight, sum(1 << end - 1 for end in ends))


class RankedHand(Hand):
    """Plays on one core per rank."""

    def __init__(self, tape: Tape, watch: Watch | None = None) -> None:
        super().__init__(tape.config, tape.order, watch, pairs=tape.pairs)
        ranks, config = tape.ranks, tape.config
        self.fates: dict[FlightId, list[Fate]] = {}
        self.locals = [Local(rank, self) for rank in range(ranks)]
        self.shelves = [one.shelf for one in self.locals]
        groups = local_groups(ranks)
        self.agreements = list(map(Agreement, self.locals, groups))
        offers = [  # each rank has room for a host page more than the one before
            replace(config, host_pages=tuple(one + rank * bool(one) for one in config.host_pages))
            for rank in range(ranks)
        ]
        agreed = lockstep(list(map(runtime_ranks.agree_on_settings, offers, groups)))
        self.drivers = list(map(Driver, map(Core, agreed[1:]), self.agreements[1:]))
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
            compare_pools(rank, event, self.core.view, driver.core.view)
        return outcomes

    def submit(self, action: Action) -> None:
        """Submits an action on all ranks; it ends when it has ended on all."""
        turn, acts, site = self._turn, self.acts or (PLAIN,), type(action).__name__
        super().submit(action)
        pending = self.pending[-1]
        fates = [Fate(pending.due, kind_of(acts[turn % len(acts)].fault, site))]
        for rank in range(1, len(self.locals)):
            act = acts[(turn + rank) % len(acts)]
            kind = kind_of(act.fault, site)
            fates.append(Fate(kind.due(self.now, self.now + self.schedule.later(act.delay)), kind))
        self.fates[action.flight] = fates
        self._begin(0, action)
        due = max(fate.due for fate in fates)
        self.pending[-1] = pending._replace(due=due)

    def _begin(self, rank: int, action: Action) -> None:
        """Starts an action on a rank whose driver does not start it."""
        self.agreements[rank].begin(action)
        self.locals[rank].submit(action)

    def abandon(self, flight: int) -> None:
        super().abandon(flight)
        self.locals[0].abandon(flight)

    def take_due(self) -> int:
        """Delivers all replies that every rank has, and those that follow. Returns their number."""
        taken = 0
        while self._agree():
            while self._agreed:
                self._deliver()
                taken += 1
        return taken

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

    def _agree(self) -> bool:
        """Whether there are replies that all ranks have."""
        lockstep([own.agree() for own in self.agreements])
        actions = {one.number: one.action for one in self.pending}
        mine, *others = (own.poll() for own in self.agreements)
        for rank, theirs in enumerate(others, 1):
            if theirs != mine:
                about = [About("flight", reply.flight) for reply in mine]
                raise Diverged("replies", f"rank 0 has {mine}, rank {rank} has {theirs}", *about)
        for reply in mine:
            what, expected = "pages", int(reply[1])
            if isinstance(reply, LookupDone):
                offers = [local.offers.pop(reply.flight) for local in self.locals]
                what, expected = "prefix", max(set.intersection(*offers), default=0)
            elif not isinstance(reply, StorageReply):
                fine = [local.fine(actions[reply.flight]) for local in self.locals]
                what, expected = "success", all(fine)
                self.probes.seen[f"{type(reply).__name__}: failed on one rank"] += len({*fine}) > 1
            if reply[1] != expected:
                text = f"the ranks agree on {reply}, and every rank has at least {expected}"
                raise Diverged(what, text, About("flight", reply.flight))
        self._agreed.extend(mine)
        return bool(mine)

    def answer(self, action: StorageAction, kind: Fault) -> StorageReply:
        reply = self._replies[action.flight]
        assert isinstance(reply, StorageReply)
        return reply

    def went_well(self, one: Pending, fine: bool) -> bool:
        """The result that the ranks agreed on."""
        reply = self._replies[one.number]
        return isinstance(reply, StorageReply) or reply.ok


def compare_outcomes(
    rank: int, event: Event, mine: Sequence[Outcome], theirs: Sequence[Outcome]
) -> None:
    """Raises Diverged for the first outcome that differs."""
    if outcome_bytes(mine) == outcome_bytes(theirs):
        return
    pairs = [map(outcome_bytes, ([one], [other])) for one, other in zip(mine, theirs, strict=False)]
    at = next((at for at, (one, other) in enumerate(pairs) if one != other), len(pairs))
    first = (*mine[at:], *theirs[at:])[0]
    text = f"after {event}: rank 0 has {mine[at:]}, rank {rank} has {theirs[at:]}"
    raise Diverged("victims" if isinstance(first, Evicted) else "outcomes", text, *named_by(first))


def compare_pools(rank: int, event: Event, mine: CoreView, theirs: CoreView) -> None:
    """Raises Diverged for the first pool that differs."""
    for tier in (Tier.DEVICE, Tier.HOST):
        for pool, other in zip(mine.pools(tier), theirs.pools(tier), strict=True):
            pair = [(one.capacity, one.protected, *one.counts) for one in (pool, other)]
            if pair[0] != pair[1]:
                about = About("pool", -1, int(tier), pool.component)
                text = f"after {event}, {about}: rank 0 has {pair[0]}, rank {rank} has {pair[1]}"
                raise Diverged("pools", text, about)
