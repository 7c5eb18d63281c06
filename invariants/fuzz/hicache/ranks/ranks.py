"""Several ranks: one core per rank, with the same events, but with its own delays and failures.

Rank 0 is the hand's core, which the checks watch. Each event goes to all ranks, and their answers
and changes must be equal. A result of the checks on rank 0 therefore holds for all ranks. Replies
pass through `hicache.runtime.agreement` in lockstep: a reply is delivered when all ranks have it.

For the n-th action of an entry, rank r uses the delay, the tie and the fault of act n + r, so an
entry with one act has equal ranks. Hooks of a fault other than time and success run only for rank
0's act. Every rank has its own contents: prefix numbers are shared, pages are separate. Its copies
and passes end with its own result, whatever the ranks agreed on, so an agreement that ignores a
rank leads to wrong content.

Does not implement the agreement (see hicache.runtime.agreement) or requests (see hand), and draws
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from hicache.core.actions import Action, Lookup, Outcome, Prefill, StorageAction
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import About
from hicache.core.events import Event, LookupDone, Reply
from hicache.core.types import FlightId, Tier
from hicache.core.view import CoreView
from hicache.runtime import agreement
from hicache.runtime.agreement import REPLIES, Agreement
from hicache.runtime.driver import Driver
from hicache.runtime.group import Diverged, Turn, UnequalCollectives, local_groups, lockstep
from hicache.runtime.restorable import LookedUp
from invariants.fuzz.hicache.content import Arrives, Content
from invariants.fuzz.hicache.faults.base import LOST, Fault, Player, kind_of
from invariants.fuzz.hicache.faults.plain import lane_of
from invariants.fuzz.hicache.probes import Probes
from invariants.fuzz.hicache.ranks.alike import compare_answers, compare_touched, compare_trees
from invariants.fuzz.hicache.shelf import Shelf
from invariants.fuzz.records import Broken, Pending
from invariants.fuzz.schedules import Schedule
from invariants.fuzz.sequence import Act

LOOK_EVERY = 16
FORCED = -1  # due regardless of delays


class Fate(NamedTuple):
    """The result of one action on one rank. kind: its fault."""

    due: int
    kind: Fault

    @property
    def fine(self) -> bool:
        return self.kind.fine

    @property
    def arrives(self) -> Callable[[int, int], bool]:
        return self.kind.arrives


class Front(Player, Protocol):
    """The parts of the hand that ranks may use, besides those for faults."""

    schedule: Schedule
    probes: Probes

    def content_of(self, rank: int) -> Content: ...
    def deliver(self, one: Pending, reply: Reply) -> None: ...
    def finish(self) -> None: ...


class Local:
    """The executor of one rank: each action ends at the time of its fate. shelf: the rank's
    storage."""

    def __init__(self, rank: int, fates: dict[FlightId, list[Fate]], front: Front) -> None:
        self.rank = rank
        self.shelf = Shelf(front.config) if rank else front.shelf
        self._fates = fates
        self._front = front
        self._open: dict[FlightId, Action] = {}
        self.offers: dict[FlightId, set[int]] = {}  # by lookup, which replies are right here

    def submit(self, action: Action) -> None:
        self._open[action.flight] = action

    def abandon(self, flight: FlightId) -> None:
        """The action ends now, unless its end is lost on this rank."""
        fates = self._fates.get(flight, [])
        for fate in fates[self.rank : self.rank + 1]:
            if fate.due < LOST:
                fates[self.rank] = fate._replace(due=min(fate.due, self._front.now))

    def start(self) -> None:
        """Does nothing: actions start when they are submitted."""

    def poll(self) -> list[Reply]:
        done = [one for one in self._open.values() if self._is_done(one)]
        for action in done:
            del self._open[action.flight]
        return [self._reply(one) for one in done]

    def _reply(self, action: Action) -> Reply:
        if not isinstance(action, StorageAction):
            return REPLIES[type(action)](action.flight, self.fine(action))
        kind, front = self._fates[action.flight][self.rank].kind, self._front
        reply = self.shelf.reply(action, kind, front.now, front.content_of(self.rank))
        if not isinstance(action, Lookup):
            return reply
        said = reply[1]
        offers = {one for one in self.shelf.boundaries(action) if one < said} | {said} - {0}
        self.offers[action.flight] = offers
        return LookedUp(action.flight, sum(1 << one - 1 for one in offers))

    def fine(self, action: Action) -> bool:
        """Whether the action succeeded on this rank; a pass needs its loads."""
        after = action.after if isinstance(action, Prefill) else ()
        return all(self._fates[flight][self.rank].fine for flight in (action.flight, *after))

    def _is_done(self, action: Action) -> bool:
        due = self._fates[action.flight][self.rank].due
        slow = self._front.slow
        until = max(slow.get(type(action).__name__, 0), slow.get(lane_of(self.rank), 0))
        return due == FORCED or max(due, until) <= self._front.now


class Ranks:
    """All ranks of one run."""

    def __init__(self, front: Front, size: int) -> None:
        self.size = size
        self.fates: dict[FlightId, list[Fate]] = {}
        self._groups = groups = local_groups(size)
        self.locals = [Local(rank, self.fates, front) for rank in range(size)]
        self.agreements = [
            Agreement(local, group) for local, group in zip(self.locals, groups, strict=True)
        ]
        offered = [_offered(front.config, rank) for rank in range(size)]
        turns = zip(offered, groups, strict=True)
        agreed = lockstep([agreement.agree_on_settings(config, group) for config, group in turns])
        self.drivers = [
            Driver(Core(config), executor)
            for config, executor in zip(agreed[1:], self.agreements[1:], strict=True)
        ]
        self.agreed: deque[Reply] = deque()  # replies not delivered yet
        self._events = 0

    # -- every event

    def follow(self, front: Front, event: Event, outcomes: Sequence[Outcome]) -> None:
        """Feeds the event to the other ranks. Raises Diverged if their answers differ from rank
        0's.
        """
        self._events += 1
        for rank, driver in enumerate(self.drivers, 1):
            mine = driver.feed(event)
            compare_answers(rank, event, outcomes, mine)
            for item in mine:
                if isinstance(item, Prefill):
                    self._begin(rank, item)
            compare_touched(rank, event, front.core.view, driver.core.view)
        if self._events % LOOK_EVERY == 0:
            self.look(front)

    def look(self, front: Front) -> None:
        """Compares the whole trees."""
        for rank, driver in enumerate(self.drivers, 1):
            compare_trees(rank, front.core.view, driver.core.view)

    # -- actions

    def submit(self, front: Front, action: Action, due: int, acts: Sequence[Act]) -> int:
        """Submits an action that is due on rank 0 at `due`. acts: by rank. Returns when all ranks
        have its end.
        """
        site = type(action).__name__
        fates = []
        for rank in range(self.size):
            act = acts[rank]
            kind = kind_of(act.fault, site)
            if rank:
                due = kind.due(front, front.now + front.schedule.later(act.delay))
                if act.fault and site in kind.sites:
                    front.counts[f"fault {act.fault} {site} on one rank"] += 1
            fates.append(Fate(due, kind))
        self.fates[action.flight] = fates
        self._begin(0, action)
        lanes = (site, *map(lane_of, range(self.size)))
        return max([one.due for one in fates] + [front.slow.get(lane, 0) for lane in lanes])

    def _begin(self, rank: int, action: Action) -> None:
        """Starts an action on a rank whose driver does not start it."""
        self.agreements[rank].begin(action)
        self.locals[rank].submit(action)

    # -- replies

    def take_due(self, front: Front) -> int:
        """Delivers all replies that every rank has, and those that follow. Returns their number."""
        taken = 0
        while True:
            self._agree(front)
            if not self.agreed:
                return taken
            while self.agreed:
                self._deliver_next(front)
                taken += 1

    def take(self, front: Front, one: Pending) -> None:
        """Forces the end of this action, and of earlier ones of its kind, on every rank, and
        delivers the replies.
        """
        kind = type(one.action)
        for other in front.pending:
            if type(other.action) is kind and other.number <= one.number:
                fates = self.fates[other.number]
                self.fates[other.number] = [fate._replace(due=FORCED) for fate in fates]
        self._agree(front)
        while any(other.number == one.number for other in front.pending):
            assert self.agreed, f"flight {one.number} was forced, and not all ranks have its end"
            self._deliver_next(front)

    def _agree(self, front: Front) -> None:
        while front.broken:
            self._break(front, front.broken.pop())
        lockstep([one.agree() for one in self.agreements])
        replies = [one.poll() for one in self.agreements]
        self._see(front.probes, replies[0])
        for rank, others in enumerate(replies):
            if others != replies[0]:
                raise Diverged(
                    "replies",
                    f"rank 0 has {replies[0]}, rank {rank} has {others}",
                    *(About("flight", one.flight) for one in replies[0]),
                )
        self._check_order(replies[0])
        self._check_prefixes(replies[0])
        self.agreed.extend(replies[0])

    def _break(self, front: Front, broken: Broken) -> None:
        """Plays an exchange in which one rank stays away, or is one exchange ahead because it took
        part twice in the one before. It must end with an error that names this rank, and with no
        reply. Then all ranks go on from the same exchange."""
        rank = broken.rank % self.size
        turns = [one.agree() for one in self.agreements]
        if broken.times:
            self._groups[rank].entered += 1
        else:
            turns[rank] = _stays_away()
        try:
            lockstep(turns)
        except UnequalCollectives as error:
            if f"rank {rank} " not in str(error):
                raise Diverged("exchange", f"rank {rank} broke it, found: {error}") from error
        else:
            raise Diverged("exchange", f"rank {rank} broke it ({broken}), and nobody noticed")
        latest = max(one.entered for one in self._groups)
        for group in self._groups:
            group.entered = latest
        front.counts[f"exchange {'doubled' if broken.times else 'lost'} on one rank"] += 1

    def _check_order(self, replies: Sequence[Reply]) -> None:
        """Replies of one kind must come in the order in which their actions were submitted."""
        for kind in REPLIES.values():
            flights = [one.flight for one in replies if type(one) is kind]
            if flights != sorted(flights):
                raise Diverged(
                    "order",
                    f"the ranks agree on {kind.__name__} of flights {flights}, expected them in "
                    "the order of submission",
                    *(About("flight", flight) for flight in flights),
                )

    def _check_prefixes(self, replies: Sequence[Reply]) -> None:
        """A lookup must find the longest prefix that every rank has offered."""
        for reply in replies:
            if not isinstance(reply, LookupDone):
                continue
            offers = [one.offers.pop(reply.flight) for one in self.locals]
            longest = max(set.intersection(*offers), default=0)
            if reply.pages != longest:
                raise Diverged(
                    "prefix",
                    f"the ranks agree on {reply.pages} pages for flight {reply.flight}, expected "
                    f"{longest}: by rank, they can restore {[sorted(one) for one in offers]}",
                    About("flight", reply.flight),
                )

    def _deliver_next(self, front: Front) -> None:
        reply = self.agreed.popleft()
        one = next(one for one in front.pending if one.number == reply.flight)
        front.deliver(one, reply)
        front.finish()

    def _see(self, probes: Probes, replies: Sequence[Reply]) -> None:
        """Counts named states of the ranks after an agreement."""
        seen = probes.seen
        leading = (one.leading()[: len(REPLIES)] for one in self.agreements)
        for kind, *counts in zip(REPLIES, *leading, strict=True):
            ahead = max(counts)
            for least in (1, 2, 4):
                seen[f"{kind.__name__}: a rank is ahead by {least}"] += ahead >= least
        for reply in replies:
            fates = self.fates[reply.flight]
            name = type(reply).__name__
            fine = sum(one.fine for one in fates)
            seen[f"{name}: failed on one rank"] += 0 < fine < self.size
            seen[f"{name}: failed on rank 0 alone"] += fine == self.size - 1 and not fates[0].fine
            seen[f"{name}: failed on every rank"] += not fine
        seen["ranks agree on replies of two kinds"] += len({type(one) for one in replies}) > 1
        seen["ranks agree on three replies"] += len(replies) >= 3


def _stays_away() -> Turn[None]:
    """A turn that enters no collective."""
    yield from ()


def _offered(config: Config, rank: int) -> Config:
    """The configuration that a rank can offer. Ranks with fewer layers have room for more host
    pages.
    """
    if not config.has_host:
        return config
    pages = tuple(size + rank * bool(size) for size in config.host_pages)
    return replace(config, host_pages=pages)


class Shards(Content):
    """The contents of each rank's pages."""

    def __init__(self, config: Config, ranks: Ranks, pairs: bool = False) -> None:
        super().__init__(config, pairs)
        self.ranks = ranks
        self.others = [Content(config, pairs) for _ in range(ranks.size - 1)]
        for other in self.others:
            other.ids, other.made, other.spelled = self.ids, self.made, self.spelled

    def see(self, item: Outcome) -> None:
        super().see(item)
        for other in self.others:
            other.see(item)

    def end_copy(
        self,
        flight: int,
        tier: Tier,
        ok: bool,
        arrives: Arrives = lambda at, count: False,
    ) -> None:
        """Ends the copy on each rank with that rank's own result."""
        for rank, fate in enumerate(self.ranks.fates[flight]):
            if rank:
                self.others[rank - 1].end_copy(flight, tier, fate.fine, fate.arrives)
            else:
                super().end_copy(flight, tier, fate.fine, fate.arrives)

    def end_pass(self, action: Prefill, ids: list[int] | None) -> None:
        for rank, local in enumerate(self.ranks.locals):
            found = ids if local.fine(action) else None
            if rank:
                self.others[rank - 1].end_pass(action, found)
            else:
                super().end_pass(action, found)

    def decode(self, request: int, ids: list[int], start: int, end: int) -> None:
        super().decode(request, ids, start, end)
        for other in self.others:
            other.decode(request, ids, start, end)

    def audit(self, view: CoreView) -> None:
        super().audit(view)
        for other in self.others:
            other.audit(view)
