"""Agreement on replies: a reply counts when all ranks have it, and is good if it is good on all.

Ranks carry out the same actions with their own latencies and failures. For each kind of action they
agree on how many actions, in the order of submission, have ended on every rank, and on whether each
succeeded. Each core gets these replies in the same order. So all cores get the same events and take
the same decisions, and decisions need no collective. Every rank takes part at every poll, even if
nothing has ended there. Actions for storage are agreed on one by one, as each may take as long as
it likes: one slow store must not delay the replies to the others.

    one collective     for each action under way whether it has ended, and the verdict or numbers
                       of pages that each rank can stand for: the conjunction over all ranks, whose
                       largest number is the reply (see `restorable`)
    a second one       only for what had no room in one message (`ROOM`), of actions that have ended
    decisions          if given, the first also carries a digest of all decisions of the core, so
                       cores that decided differently are an error at the next poll

This file has this wrapper around an executor, and the agreement on settings before a core is built.
It does not know how ranks reach each other, see `group`, or what a reply means, see the core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from hashlib import blake2b
from itertools import takewhile
from typing import NoReturn

import numpy as np

from hicache.core.actions import Action, Backup, Load, Prefill, StorageAction, Transfer
from hicache.core.config import Config
from hicache.core.errors import About, CallerError
from hicache.core.events import BackupDone, LoadDone, PrefillDone, Reply
from hicache.core.types import FlightId

from .decisions import Decisions
from .driver import REPLY_TO, Executor
from .group import ROOM, Diverged, Group, Turn, alone, of_ranks
from .restorable import WORD, most_of, offered, packed, unpacked, upto

REPLIES: dict[type, type[BackupDone | LoadDone | PrefillDone]] = {
    Backup: BackupDone,
    Load: LoadDone,
    Prefill: PrefillDone,
}
_CAPACITIES = ("device_pages", "host_pages")
_SHORT = 48  # bytes of a value that is shown
_DIGEST = 32  # bits


class Agreement:
    """The executor of one rank. The driver submits transfers to it as to any executor. The code
    that runs forward passes reports each with `begin` and `end`, and gets its reply from `poll`."""

    def __init__(
        self, executor: Executor, group: Group, decisions: Decisions | None = None
    ) -> None:
        self.executor = executor
        self.group = group
        self._decisions = decisions
        # By kind; an action for storage has a lane of its own, under its flight.
        self._lanes: dict[type | FlightId, deque[FlightId]] = {kind: deque() for kind in REPLIES}
        self._open: dict[FlightId, Action] = {}
        self._ended: dict[FlightId, int] = {}  # not yet agreed: what this rank offers
        self._agreed: list[Reply] = []

    def submit(self, action: Transfer | StorageAction) -> None:
        self.begin(action)
        self.executor.submit(action)

    def abandon(self, flight: FlightId) -> None:
        self.executor.abandon(flight)

    def start(self) -> None:
        self.executor.start()

    def begin(self, action: Action) -> None:
        """Note that an action was begun. The caller itself carries out forward passes."""
        kind = type(action)
        self._open[action.flight] = action
        lane = kind if kind in REPLIES else action.flight
        self._lanes.setdefault(lane, deque()).append(action.flight)

    def end(self, reply: Reply) -> None:
        """Note that an action has ended on this rank, with or without success. Raises CallerError
        for a reply to nothing, or with more pages than were asked for."""
        flight, found = reply.flight, int(reply[1])
        most = most_of(self._open[flight]) if flight in self._open else -1
        if not 0 <= found <= most:
            raise CallerError(f"flight {flight}: expected 0 to {most} pages, found {found}")
        self._ended[flight] = offered(reply)

    def poll(self) -> list[Reply]:
        """The replies that all ranks have. In a group that waits, every rank must call this equally
        often. In any other group, the caller must first run `agree` of all ranks in lockstep."""
        if self.group.waits:
            alone(self.agree())
        taken, self._agreed = self._agreed, []
        return taken

    def leading(self) -> list[int]:
        """By kind, how many of the oldest actions have all ended on this rank; then for each action
        for storage, in the order of submission, 1 if it has ended."""
        return [
            sum(1 for _ in takewhile(self._ended.__contains__, lane))
            for lane in self._lanes.values()
        ]

    def agree(self) -> Turn[None]:
        """Find out which replies all ranks have."""
        for reply in self.executor.poll():
            self.end(reply)
        everywhere = yield from self._everywhere()
        for flight, found in everywhere.items():
            del self._ended[flight]
            action = self._open.pop(flight)
            if type(action) in REPLIES:
                self._lanes[type(action)].remove(flight)
            else:
                del self._lanes[flight]
            self._agreed.append(REPLY_TO[type(action)](flight, found.bit_length()))

    def _everywhere(self) -> Turn[dict[FlightId, int]]:
        """The replies that every rank has, in the order in which they are given: the numbers that
        are right on all. Raises Diverged if cores decided differently, or if the group found
        something that is not so here."""
        begun, early, room = list(self._open), [], ROOM * WORD - 2 * _DIGEST - len(self._open)
        for flight in begun:
            size = most_of(self._open[flight])
            if size <= room:
                early.append(flight)
                room -= size
        seen = self._decisions.short() if self._decisions is not None else "0"
        number = int(seen, 16)
        has = [number, ~number & upto(_DIGEST), *(int(one in self._ended) for one in begun)]
        purpose = f"replies to {len(begun)} actions"
        sizes = [_DIGEST, _DIGEST, *[1] * len(begun)]
        found = yield from self._all_have(purpose, has, sizes, early)
        if found[:2] != has[:2]:
            said = yield from _said([seen], self.group)  # on every rank, as all find a difference
            raise Diverged("decisions", f"the digest is {_who_has([one for [one] in said])}")
        ended = {flight for flight, one in zip(begun, found[2:], strict=False) if one}
        if ended - self._ended.keys():
            self._wrong(f"ended {sorted(self._ended)}", f"ended {sorted(ended)}")
        flights = [
            one for lane in self._lanes.values() for one in takewhile(ended.__contains__, lane)
        ]
        sets = dict(zip(early, found[len(has) :], strict=True))
        if late := [one for one in flights if one not in sets]:  # the same on every rank
            found = yield from self._all_have("replies without room", [], [], late)
            sets |= zip(late, found, strict=True)
        for flight in flights:
            if sets[flight] & ~self._ended[flight]:
                mine, all_have = _numbers(self._ended[flight]), _numbers(sets[flight])
                self._wrong(f"can stand for {mine} of flight {flight}", all_have, flight)
        return {flight: sets[flight] for flight in flights}

    def _all_have(
        self, purpose: str, has: list[int], sizes: list[int], flights: Sequence[FlightId]
    ) -> Turn[list[int]]:
        """What is on every rank of what this one has, and of what it offers for these flights."""
        has = has + [self._ended.get(flight, 0) for flight in flights]
        sizes = sizes + [most_of(self._open[flight]) for flight in flights]
        found = yield from self.group.conjunction(purpose, packed(has, sizes))
        return unpacked(found, sizes)

    def _wrong(self, mine: str, found: str, *flights: FlightId) -> NoReturn:
        raise Diverged(
            "reduction",
            f"rank {self.group.rank} {mine}, and the conjunction is {found}",
            *(About("flight", flight) for flight in flights),
        )


def agree_on_settings(config: Config, group: Group) -> Turn[Config]:
    """The settings for the core of every rank. Each pool gets the smallest size that a rank has.
    Raises CallerError if other settings differ between ranks; it names all of them."""
    others = [one.name for one in fields(Config) if one.name not in _CAPACITIES]
    yield from agree_on({name: getattr(config, name) for name in others}, group)
    pages = yield from group.minimum("capacities", [*config.device_pages, *config.host_pages])
    width = len(config.components)
    return replace(config, device_pages=pages[:width], host_pages=pages[width:])


def agree_on(values: Mapping[str, object], group: Group) -> Turn[None]:
    """That every rank has the same values under the same names. Raises CallerError that names all
    which differ, and who has what."""
    own = [_number(one) for one in values.values()]
    found = yield from group.minimum("settings", [*own, *(-one for one in own)])
    unequal = [
        name
        for name, least, most in zip(values, found, found[len(own) :], strict=False)
        if least != -most
    ]
    if unequal:  # on every rank
        said = yield from _said([values[name] for name in unequal], group)
        rows = [
            f"{name} {_who_has(column)}"
            for name, column in zip(unequal, zip(*said, strict=True), strict=True)
        ]
        raise CallerError(
            f"{', '.join(unequal)}: expected the same on every rank, found {'; '.join(rows)}; give "
            "all ranks the same"
        )


def _said(values: Sequence[object], group: Group) -> Turn[list[list[str]]]:
    """What each rank has, as short texts."""
    sent = np.frombuffer(b"".join(map(_short, values)), dtype="<i8").tolist()
    said = []
    for root in range(group.size):
        words = yield from group.broadcast("settings that differ", sent, root)
        raw = np.array(words, dtype="<i8").tobytes()
        parts = [raw[at : at + _SHORT] for at in range(0, len(raw), _SHORT)]
        said.append([part.rstrip(b"\0").decode(errors="replace") for part in parts])
    return said


def _short(value: object) -> bytes:
    """A text of a fixed length. A longer one ends with its hash, so different ones stay so."""
    text = repr(value).encode()
    if len(text) > _SHORT:
        end = f"... #{_number(value):014x}".encode()
        text = text[: _SHORT - len(end)] + end
    return text.ljust(_SHORT, b"\0")


def _who_has(texts: Sequence[str]) -> str:
    """Each text with the ranks that have it."""
    ranks: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        ranks.setdefault(text, []).append(rank)
    return ", ".join(f"{text} on {of_ranks(having)}" for text, having in ranks.items())


def agree_that(purpose: str, mine: bool, group: Group) -> Turn[bool]:
    """Whether something is so on every rank, such as that it could open its store. purpose: for
    messages."""
    [least] = yield from group.minimum(purpose, [int(mine)])
    return bool(least)


def _numbers(one: int) -> str:
    """The numbers of a set, for messages."""
    found = [str(at) for at in range(1, one.bit_length() + 1) if one >> at - 1 & 1]
    return ", ".join(found) or "none"


def _number(value: object) -> int:
    """A hash of a setting, the same for equal settings."""
    text = repr(value).encode()
    return int.from_bytes(blake2b(text, digest_size=7).digest(), "big")
