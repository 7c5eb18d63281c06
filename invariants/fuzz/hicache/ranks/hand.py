"""A hand with several ranks: the other ranks get every event of rank 0, and the ranks agree on
replies.

Lives here: the connection between the hand, its core and the ranks, and choosing the hand of a
tape. Does not implement the ranks (see ranks) or the play on one core (see hand).
"""

from __future__ import annotations

from hicache.core.actions import Action, Outcome, StorageAction
from hicache.core.config import Config
from hicache.core.events import Event, Reply, StorageReply
from invariants.fuzz.hicache.content import Content
from invariants.fuzz.hicache.device.hand import DeviceHand
from invariants.fuzz.hicache.executors import device_of, settings_of
from invariants.fuzz.hicache.faults.base import Fault
from invariants.fuzz.hicache.hand import PLAIN, Hand
from invariants.fuzz.hicache.ranks.ranks import Ranks, Shards
from invariants.fuzz.records import Pending
from invariants.fuzz.sequence import Tape
from invariants.watch import Watch


class RankedHand(Hand):
    """Plays on one core per rank."""

    def __init__(
        self,
        config: Config,
        order: str = "time",
        watch: Watch | None = None,
        ranks: int = 2,
        pairs: bool = False,
    ) -> None:
        super().__init__(config, order, watch, pairs=pairs)
        self.ranks = Ranks(self, ranks)
        self.content = Shards(config, self.ranks, pairs)
        self._replies: dict[int, Reply] = {}

    def feed(self, event: Event) -> list[Outcome]:
        outcomes = super().feed(event)
        self.ranks.follow(self, event, outcomes)
        return outcomes

    def see(self, item: Outcome) -> None:
        super().see(item)
        for rank, local in enumerate(self.ranks.locals[1:], 1):
            if isinstance(item, StorageAction):
                local.shelf.begin(item, self.content_of(rank))

    def submit(self, action: Action) -> None:
        """Submits an action on all ranks. Each rank uses the act after that of the rank before it,
        and the action ends when it has ended on all.
        """
        turn, acts = self._turn, self.acts or (PLAIN,)
        super().submit(action)
        mine = [acts[(turn + rank) % len(acts)] for rank in range(self.ranks.size)]
        one = self.pending[-1]
        self.pending[-1] = one._replace(due=self.ranks.submit(self, action, one.due, mine))

    def take_due(self) -> int:
        if self.blind:
            self.blind -= 1
            return 0
        return self.ranks.take_due(self)

    def take(self, one: Pending) -> None:
        """Forces this reply on all ranks and delivers it."""
        self.ranks.take(self, one)

    def deliver(self, one: Pending, reply: Reply) -> None:
        """Delivers a reply that all ranks have."""
        self._replies[one.number] = reply
        super().take(one)

    def abandon(self, flight: int) -> None:
        super().abandon(flight)
        self.ranks.locals[0].abandon(flight)

    def content_of(self, rank: int) -> Content:
        """The contents of a rank's pages."""
        shards = self.content
        assert isinstance(shards, Shards)
        return shards.others[rank - 1] if rank else shards

    def answer(self, action: StorageAction, kind: Fault) -> StorageReply:
        reply = self._replies[action.flight]
        assert isinstance(reply, StorageReply)
        return reply

    def went_well(self, one: Pending, fine: bool) -> bool:
        """The result that the ranks agreed on."""
        reply = self._replies[one.number]
        return isinstance(reply, StorageReply) or reply.ok


def hand_of(tape: Tape, watch: Watch | None = None) -> Hand:
    """Returns the hand that plays a tape."""
    if tape.ranks > 1:
        return RankedHand(tape.config, tape.order, watch, tape.ranks, tape.pairs)
    settings = settings_of(tape.executor)
    if settings is not None:
        real = device_of(tape.executor)
        return DeviceHand(tape.config, settings, tape.order, watch, real=real, seed=tape.seed)
    return Hand(tape.config, tape.order, watch, pairs=tape.pairs)
