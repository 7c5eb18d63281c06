"""Which events a core accepts: every kind of event, with arguments at and around their limits, for
requests at every stage. The core must accept exactly the legal events, and a refused event must not
change it.

Lives here: the stages, the events and whether they are legal. Does not check the effects of events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from hicache.core.actions import Prefill
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    MatchWanted,
    PagesWanted,
    PrefillDone,
    Reply,
    Retracted,
)
from hicache.core.types import MOST_PRIORITY, Key, Tier
from hicache.runtime.driver import Driver

SIZE = 2
PROMPT = 5  # tokens: two pages and a half
ROOM = 6  # pages on device


@dataclass
class Stage:
    """A core with one request, its state, and which events may follow. flight: of its pass."""

    name: str
    driver: Driver
    length: int = PROMPT
    admitted: bool = False
    computed: int = 0
    shared: int = 0
    table: int = 0
    flight: int = 0
    key: Key = field(default_factory=lambda: key_of(PROMPT))


class _Nobody:
    """An executor that does nothing; the test feeds the replies."""

    def submit(self, action: object) -> None:
        """Does nothing."""

    def abandon(self, flight: int) -> None:
        """Does nothing."""

    def start(self) -> None:
        """Does nothing."""

    def poll(self) -> list[Reply]:
        return []


def key_of(tokens: int, first: int = 1, namespace: str = "", size: int = SIZE) -> Key:
    return Key.from_tokens([first, *range(2, tokens + 1)][:tokens], size, namespace)


STAGES = ("nobody", "waiting", "first pass", "idle", "decoding")


def stage(name: str) -> Stage:
    """Returns a new core whose only request is at this stage."""
    made = Stage(name, Driver(Core(Config(SIZE, (ROOM,), (4,))), _Nobody()))
    feed = made.driver.feed
    at = STAGES.index(name)
    if at >= 1:
        feed(Arrived(0, key_of(PROMPT), PROMPT, 2))
    if at >= 2:
        (made.flight,) = (one.flight for one in feed(AdmitWanted(0, 2)) if type(one) is Prefill)
        made.admitted, made.table = True, 3
    if at >= 3:
        feed(PrefillDone(made.flight))
        made.flight, made.computed, made.shared = 0, 2, 1
    if at >= 4:
        (flight,) = (one.flight for one in feed(ContinueWanted(0, 9)) if type(one) is Prefill)
        feed(PrefillDone(flight))
        made.computed, made.shared = PROMPT, 2
    return made


def holds() -> bool:
    """Whether exactly the illegal events are refused at every stage without changes, as is an
    object that is not an event.
    """
    try:
        stage(STAGES[0]).driver.feed(object())  # type: ignore[arg-type]
    except CallerError:
        return all(map(_holds, STAGES))
    return False


def _holds(name: str) -> bool:
    at = stage(name)
    for event, legal in _events(at):
        before = _outline(at)
        try:
            at.driver.feed(event)
        except CallerError:
            if legal or _outline(at) != before:
                return False
            continue
        if not legal:
            return False
        at = stage(name)
    return True


def _outline(at: Stage) -> tuple[object, ...]:
    view = at.driver.core.view
    pool = view.pool(Tier.DEVICE)
    nodes = sum(1 for _ in view.nodes())
    admitted = [one.admitted for one in view.requests.values()]
    return (
        *pool.counts,
        pool.protected,
        nodes,
        view.tick,
        *view.flights,
        *view.requests,
        *admitted,
    )


def _events(at: Stage) -> Iterator[tuple[Event, bool]]:
    """Yields events, and whether they are legal at this stage."""
    there = at.name != "nobody"
    waiting, idle = there and not at.admitted, at.admitted and not at.flight
    for number in (0, 1, -1):
        mine = number == 0
        yield MatchWanted(number), mine and waiting
        yield Aborted(number), mine and there
        for chunk in (-1, 0, 1):
            yield AdmitWanted(number, chunk), mine and waiting and chunk >= 1
            more = mine and idle and at.computed < at.length
            yield ContinueWanted(number, chunk), more and chunk >= 1
        decoding = mine and idle and at.computed >= at.length
        for length, computed in product((1, PROMPT, 7, 99), (-1, 0, 5, 6, 7)):
            yield PagesWanted(number, length, computed), decoding and 0 <= computed <= 6
        for key, length in product(_keys(), (0, 1, 2, 3, 4, 5, 6, 7)):
            yield Finished(number, key, length), mine and idle and _fits(at, key, length)
    yield from _retractions(at, idle)
    yield from _replies(at)
    yield from _arrivals(at, there)
    yield from ((event, False) for event in _misshapen())
    for priority in (-MOST_PRIORITY - 1, -MOST_PRIORITY, MOST_PRIORITY, MOST_PRIORITY + 1):
        yield Arrived(5, key_of(4), 5, 2, priority), abs(priority) <= MOST_PRIORITY
    yield Flushed(), True
    for tier, name, pages in product(Tier, ("full", "swa"), (-1, 0, 1)):
        legal = tier in (Tier.DEVICE, Tier.HOST) and name == "full" and pages >= 0
        yield EvictWanted(tier, name, pages), legal


def _keys() -> list[Key]:
    keys = [key_of(tokens) for tokens in (0, 2, 4, 6, 8)]
    keys += [key_of(4, first=9), key_of(4, namespace="a"), key_of(4, size=1)]
    return keys


def _fits(at: Stage, key: Key, length: int) -> bool:
    """Whether a request may end with these committed pages and tokens."""
    if at.computed < at.length and length > at.computed:
        return False
    most = -(-length // SIZE)
    if not at.shared <= key.pages <= most or length > at.table * SIZE:
        return False
    same = (key.namespace, key.stride) == (at.key.namespace, at.key.stride)
    return same and key.first(at.shared) == at.key.first(at.shared)


def _retractions(at: Stage, idle: bool) -> Iterator[tuple[Event, bool]]:
    for key, length, known in product(_keys(), (0, 5, 6), (-1, 0, 2, 3, 4)):
        most = -(-length // SIZE)
        legal = length >= 1 and key.pages <= most and 0 <= known <= most
        legal = legal and key.stride == at.key.stride
        for committed in (0, 1, 2, 4, 5, 6):
            kept = key.first(committed // SIZE)
            fits = idle and legal and _fits(at, kept, committed)
            yield Retracted(0, key, length, known, committed), fits


def _replies(at: Stage) -> Iterator[tuple[Event, bool]]:
    for number in (at.flight, at.flight + 1, -1):
        yield LoadDone(number), False
        yield BackupDone(number), False
        for fine in (False, True):
            yield PrefillDone(number, fine), bool(at.flight) and number == at.flight


def _misshapen() -> Iterator[Event]:
    """Events whose values are of other types than the contract names."""
    key = key_of(4)
    for wrong in ("1", 1.5, None, [1]):
        one: Any = wrong
        yield from (MatchWanted(one), Aborted(one), AdmitWanted(one, 1), ContinueWanted(one, 1))
        yield from (AdmitWanted(0, one), ContinueWanted(0, one), PagesWanted(0, one))
        yield from (PagesWanted(one, 1), PagesWanted(0, 1, one), Finished(one, key, 4))
        yield from (Finished(0, key, one), Finished(0, one, 4), Finished(0, Key(one, 16), 4))
        yield from (Retracted(0, key, 5, 2, one), Retracted(0, key, one, 2, 4))
        yield from (Retracted(0, key, 5, one, 4), Retracted(0, one, 5, 2, 4))
        yield from (Arrived(one, key, 5, 2), Arrived(5, one, 5, 2), Arrived(5, Key(one, 16), 5, 2))
        yield from (Arrived(5, key, one, 2), Arrived(5, key, 5, one), Arrived(5, key, 5, 2, one))
        yield from (Arrived(5, key._replace(stride=one), 5, 2), EvictWanted(one, "full", 1))
        yield from (EvictWanted(Tier.DEVICE, "full", one), EvictWanted(Tier.DEVICE, one, 1))
        yield from (LoadDone(one), BackupDone(one), PrefillDone(one))
    for space in (1, None):
        other: Any = space
        yield Arrived(5, key._replace(namespace=other), 5, 2)
    for raw in (bytes(8), bytes(24)):
        yield from (Arrived(5, Key(raw, 16), 5, 2), Finished(0, Key(raw, 16), 5))


def _arrivals(at: Stage, there: bool) -> Iterator[tuple[Event, bool]]:
    cases = product(
        (-1, 0, 5), range(-1, 4), (0, 8, 12, 16), range(4), range(-1, 4), ("", "\ud800")
    )
    for number, length, stride, pages, known, space in cases:
        most = -(-length // SIZE)
        legal = number == 5 or (number == 0 and not there)
        legal = legal and length >= 1 and space == "" and stride > 0 and stride % 8 == 0
        legal = legal and (not there or stride == at.key.stride)
        legal = legal and pages <= most and 0 <= known <= most
        yield Arrived(number, Key(bytes(stride * pages), stride, space), length, known), legal
