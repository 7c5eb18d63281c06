"""Several ranks: one core per rank with the same events, and delays and failures of its own.

Rank 0 is the player's core, which the checks watch. Each event goes to all ranks: their outcomes
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
from itertools import zip_longest
from typing import NamedTuple

from hicache.core.actions import Action, Evicted, Lookup, Outcome, Prefill, StorageAction
from hicache.core.core import Core
from hicache.core.errors import About
from hicache.core.events import Event, LookupDone, Reply, StorageReply
from hicache.core.types import Tier, TransferId
from hicache.core.view import CoreView
from hicache.runtime import ranks as runtime_ranks
from hicache.runtime.driver import Driver
from hicache.runtime.encoding import outcome_bytes
from hicache.runtime.ranks import REPLIES, Agreement, Diverged, local_groups, lockstep, looked_up
from invariants.checker import Checker
from invariants.fuzz.hicache.player import LOST, Fault, Player, SimulatedStore, kind_of
from invariants.fuzz.schedules import Pending
from invariants.fuzz.sequence import PLAIN, FuzzSequence
from invariants.shadow.story import named_by

FORCED = -1  # due regardless of delays


class Fate(NamedTuple):
    """When one action ends on one rank, and how."""

    due: int
    kind: Fault


class Local:
    """The executor of one rank: each action ends at the time of its fate."""

    def __init__(self, rank: int, player: RankedPlayer) -> None:
        self.rank, self._player = rank, player
        self.simulated_store = SimulatedStore(player.config) if rank else player.simulated_store
        self.offers: dict[TransferId, set[int]] = {}  # by lookup, which replies are right here
        self._open: dict[TransferId, Action] = {}

    def submit(self, action: Action) -> None:
        self._open[action.transfer] = action

    def abandon(self, transfer: TransferId) -> None:
        """The action ends now, unless its end is lost on this rank."""
        fates, now = self._player.fates.get(transfer), self._player.now
        if fates and fates[self.rank].due < LOST:
            fates[self.rank] = fates[self.rank]._replace(due=min(fates[self.rank].due, now))

    def start(self) -> None:
        """Does nothing: actions start when they are submitted."""

    def poll(self) -> list[Reply]:
        fates, now = self._player.fates, self._player.now
        ended = [x for x in self._open.values() if fates[x.transfer][self.rank].due <= now]
        for action in ended:
            del self._open[action.transfer]
        return [self._reply(action) for action in ended]

    def fine(self, action: Action) -> bool:
        """Whether the action succeeded on this rank; a pass needs its loads."""
        after = action.after if isinstance(action, Prefill) else ()
        fates = [self._player.fates[transfer][self.rank] for transfer in (action.transfer, *after)]
        return all(fate.kind.fine for fate in fates)

    def _reply(self, action: Action) -> Reply:
        if not isinstance(action, StorageAction):
            return REPLIES[type(action)](action.transfer, self.fine(action))
        kind = self._player.fates[action.transfer][self.rank].kind
        reply = self.simulated_store.reply(action, kind)
        if not isinstance(action, Lookup):
            return reply
        ends = {end for end in self.simulated_store.boundaries(action) if end < reply[1]}
        ends |= {reply[1]} - {0}
        self.offers[action.transfer] = ends
        return looked_up(action.transfer, sum(1 << end - 1 for end in ends))


class RankedPlayer(Player):
    """Plays on one core per rank."""

    def __init__(self, sequence: FuzzSequence, checker: Checker | None = None) -> None:
        super().__init__(sequence.config, sequence.order, checker, pairs=sequence.pairs)
        ranks, config = sequence.ranks, sequence.config
        self.fates: dict[TransferId, list[Fate]] = {}
        self.locals = [Local(rank, self) for rank in range(ranks)]
        self.simulated_stores = [item.simulated_store for item in self.locals]
        groups = local_groups(ranks)
        self.agreements = list(map(Agreement, self.locals, groups))
        offers = [  # each rank has room for a host page more than the one before
            replace(config, host_pages=tuple(n + rank * bool(n) for n in config.host_pages))
            for rank in range(ranks)
        ]
        agreed = lockstep(list(map(runtime_ranks.agree_on_settings, offers, groups)))
        self.drivers = list(map(Driver, map(Core, agreed[1:]), self.agreements[1:]))
        self._agreed: deque[Reply] = deque()  # not delivered yet
        self._replies: dict[TransferId, Reply] = {}

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
        self.fates[action.transfer] = fates
        self._begin(0, action)
        due = max(fate.due for fate in fates)
        self.pending[-1] = pending._replace(due=due)

    def _begin(self, rank: int, action: Action) -> None:
        """Starts an action on a rank whose driver leaves that to the player."""
        self.agreements[rank].begin(action)
        self.locals[rank].submit(action)

    def abandon(self, transfer: int) -> None:
        super().abandon(transfer)
        self.locals[0].abandon(transfer)

    def take_due(self) -> int:
        """Delivers all replies that every rank has, and those that follow. Returns their number."""
        taken = 0
        while self._agree():
            while self._agreed:
                self._deliver()
                taken += 1
        return taken

    def take(self, pending: Pending) -> None:
        """Forces the end of this action, and of earlier ones of its kind, on every rank, and
        delivers the replies."""
        for other in self.pending:
            if other.kind == pending.kind and other.number <= pending.number:
                fates = self.fates[other.number]
                self.fates[other.number] = [fate._replace(due=FORCED) for fate in fates]
        self._agree()
        text = f"transfer {pending.number} was forced, and not all ranks have its end"
        while any(other.number == pending.number for other in self.pending):
            assert self._agreed, text
            self._deliver()

    def _deliver(self) -> None:
        reply = self._agreed.popleft()
        self._replies[reply.transfer] = reply
        super().take(next(pending for pending in self.pending if pending.number == reply.transfer))
        self.finish()

    def _agree(self) -> bool:
        """Whether there are replies that all ranks have."""
        lockstep([own.agree() for own in self.agreements])
        actions = {pending.number: pending.action for pending in self.pending}
        mine, *others = (own.poll() for own in self.agreements)
        for rank, theirs in enumerate(others, 1):
            if theirs != mine:
                about = [About("transfer", reply.transfer) for reply in mine]
                raise Diverged("replies", f"rank 0 has {mine}, rank {rank} has {theirs}", *about)
        for reply in mine:
            what, expected = "pages", int(reply[1])
            if isinstance(reply, LookupDone):
                offers = [local.offers.pop(reply.transfer) for local in self.locals]
                what, expected = "prefix", max(set.intersection(*offers), default=0)
            elif not isinstance(reply, StorageReply):
                fine = [local.fine(actions[reply.transfer]) for local in self.locals]
                what, expected = "success", all(fine)
                self.probes.seen[f"{type(reply).__name__}: failed on one rank"] += len({*fine}) > 1
            if reply[1] != expected:
                text = f"the ranks agree on {reply}, and every rank has at least {expected}"
                raise Diverged(what, text, About("transfer", reply.transfer))
        self._agreed.extend(mine)
        return bool(mine)

    def answer(self, action: StorageAction, kind: Fault) -> StorageReply:
        reply = self._replies[action.transfer]
        assert isinstance(reply, StorageReply)
        return reply

    def went_well(self, pending: Pending, fine: bool) -> bool:
        """The result that the ranks agreed on."""
        reply = self._replies[pending.number]
        return isinstance(reply, StorageReply) or reply.ok


def compare_outcomes(
    rank: int, event: Event, mine: Sequence[Outcome], theirs: Sequence[Outcome]
) -> None:
    """Raises Diverged for the first outcome that differs."""
    for pair in zip_longest(mine, theirs):
        first = pair[0] or pair[1]
        if None in pair or outcome_bytes(pair[:1]) != outcome_bytes(pair[1:]):
            text = f"after {event}: rank 0 has {pair[0]}, rank {rank} has {pair[1]}"
            what = "victims" if isinstance(first, Evicted) else "outcomes"
            raise Diverged(what, text, *named_by(first))


def compare_pools(rank: int, event: Event, mine: CoreView, theirs: CoreView) -> None:
    """Raises Diverged for the first pool that differs."""
    for tier in (Tier.DEVICE, Tier.HOST):
        for pool, other in zip(mine.pools(tier), theirs.pools(tier), strict=True):
            pair = [(item.capacity, item.protected, *item.counts) for item in (pool, other)]
            if pair[0] != pair[1]:
                about = About("pool", -1, int(tier), pool.component)
                text = f"after {event}, {about}: rank 0 has {pair[0]}, rank {rank} has {pair[1]}"
                raise Diverged("pools", text, about)
