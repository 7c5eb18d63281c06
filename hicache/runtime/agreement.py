"""Agreement on replies: what all ranks have, in one order, good only if it is good everywhere.

Ranks carry out the same actions with their own latencies and failures. Of each kind of action they
agree on how many, in the order of submission, have ended on every rank, and on their verdicts;
those replies reach each core in the same order. So the same events lead to the same decisions, and
no decision is ever reduced. Every rank enters at every poll, whether or not anything ended there.

    agree      collectives    how many replies of each kind: minimum over ranks of what has ended
                              and, where any has, their verdicts: minimum over ranks
    decisions  where given, a digest of all that the core answered goes with the first collective:
               cores that went apart are an error at the next poll

Lives here: that wrapper around an executor, and the agreement on settings before a core is built.
Must not live here: how ranks reach each other (group), or what a reply means (the core).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields, replace
from hashlib import blake2b
from itertools import takewhile

from hicache.core.actions import Action, Backup, Load, Prefill
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, LoadDone, PrefillDone, Reply
from hicache.core.types import FlightId

from .decisions import Decisions
from .driver import Executor
from .group import Diverged, Group, Turn, Values, alone

REPLIES: dict[type, type[BackupDone | LoadDone | PrefillDone]] = {
    Backup: BackupDone,
    Load: LoadDone,
    Prefill: PrefillDone,
}
_CAPACITIES = ("device_pages", "host_pages")


class Agreement:
    """An executor of one rank. The driver submits transfers to it as to any other; whoever runs
    forward passes tells it of each with `begin` and `end`, and gets the reply from `poll`."""

    def __init__(
        self, executor: Executor, group: Group, decisions: Decisions | None = None
    ) -> None:
        self.executor = executor
        self.group = group
        self._decisions = decisions
        self._lanes: dict[type, deque[FlightId]] = {kind: deque() for kind in REPLIES}
        self._ended: dict[FlightId, bool] = {}  # here, and not yet agreed
        self._agreed: list[Reply] = []

    def submit(self, action: Load | Backup) -> None:
        self.begin(action)
        self.executor.submit(action)

    def start(self) -> None:
        self.executor.start()

    def begin(self, action: Action) -> None:
        """An action is under way; a forward pass is carried out by the caller."""
        self._lanes[type(action)].append(action.flight)

    def end(self, reply: Reply) -> None:
        """It has ended on this rank, well or not."""
        self._ended[reply.flight] = reply.ok

    def poll(self) -> list[Reply]:
        """Replies that all ranks have. In a group that waits, every rank has to call this equally
        often; else `agree` must have been played in lockstep."""
        if self.group.waits:
            alone(self.agree())
        taken, self._agreed = self._agreed, []
        return taken

    def leading(self) -> list[int]:
        """By kind, how many actions have ended here with none before them under way."""
        return [
            sum(1 for _ in takewhile(self._ended.__contains__, lane))
            for lane in self._lanes.values()
        ]

    def agree(self) -> Turn[None]:
        """Find out which replies all ranks have."""
        for reply in self.executor.poll():
            self.end(reply)
        counts = yield from self._counts()
        lanes = zip(self._lanes.items(), counts, strict=True)
        flights = [(kind, lane.popleft()) for (kind, lane), count in lanes for _ in range(count)]
        if flights:  # as many on every rank
            verdicts = yield from self._verdicts([flight for _, flight in flights])
            for (kind, flight), ok in zip(flights, verdicts, strict=True):
                del self._ended[flight]
                self._agreed.append(REPLIES[kind](flight, bool(ok)))

    def _counts(self) -> Turn[list[int]]:
        """By kind, how many replies every rank has."""
        own = self.leading()
        seen = self._decisions.short() if self._decisions is not None else "0"
        number = int(seen, 16)
        found = yield from self.group.minimum("replies that ended", [*own, number, -number])
        *counts, least, most = found
        if least != -most:
            raise Diverged(
                "decisions",
                f"rank {self.group.rank} is at {seen}, ranks range from {least:x} to {-most:x}",
            )
        if any(count > mine for count, mine in zip(counts, own, strict=True)):
            raise Diverged(
                "reduction",
                f"rank {self.group.rank} offered {own} replies, and the minimum is {counts}",
            )
        return counts

    def _verdicts(self, flights: Sequence[FlightId]) -> Turn[Values]:
        own = [int(self._ended[flight]) for flight in flights]
        return (yield from self.group.minimum("verdicts of replies", own))


def agree_on_settings(config: Config, group: Group) -> Turn[Config]:
    """The settings of every rank's core: each pool as small as on the rank that has least of it.
    Everything else must be the same. Raises CallerError."""
    others = [one.name for one in fields(Config) if one.name not in _CAPACITIES]
    own = [_number(config, name) for name in others]
    found = yield from group.minimum("settings", [*own, *(-one for one in own)])
    for name, least, most in zip(others, found, found[len(others) :], strict=False):
        if least != -most:
            raise CallerError(
                f"{name}: expected the same on every rank, found {getattr(config, name)!r} on rank "
                f"{group.rank} and something else on another; give all ranks the same"
            )
    pages = yield from group.minimum("capacities", [*config.device_pages, *config.host_pages])
    width = len(config.components)
    return replace(config, device_pages=pages[:width], host_pages=pages[width:])


def _number(config: Config, name: str) -> int:
    """A setting as a number that equal ones share."""
    text = repr(getattr(config, name)).encode()
    return int.from_bytes(blake2b(text, digest_size=7).digest(), "big")
