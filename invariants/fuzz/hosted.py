"""Plays a tape on two cores at once, one with a host tier and one without, and compares them.

    Given the same events, both cores answer the same and find as many pages of every prompt on
    device.

This holds of full attention alone, under an order of eviction that compares last uses only. A copy
to host is no use of a page, and while it holds back a cold page, nothing warmer goes in its place.
What a copy changes is time. So when the core with a host is writing back, or evicts less than was
asked, copies end until it does the same; and before a flush all of them end, since the pages that
a copy reads are not free before its reply. Loads are switched off.

It does not hold of

    loads               a request that loads begins later in its prompt
    storage             what is fetched is on host before it was computed
    other orders        host keeps a node, with its hits, its priority and the tick at which it was
                        inserted, when it has left the device; so it ranks otherwise once it is back
    windows and states  a boundary that is on host is live, so its copies on device are no garbage

Does not draw a tape, or judge a core alone (see checks).
"""

from __future__ import annotations

from dataclasses import replace

from hicache import registry
from hicache.core.actions import (
    Action,
    Admitted,
    Backup,
    Granted,
    Matched,
    Outcome,
    Prefill,
    Refused,
)
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    Aborted,
    Arrived,
    BackupDone,
    Event,
    EvictWanted,
    Flushed,
    LoadDone,
    PrefillDone,
)
from hicache.core.types import Tier
from hicache.runtime.driver import Driver
from invariants.orders import is_recency
from invariants.watch import Watch

from .faults.plain import KINDS, Error
from .hand import LOST, Hand
from .records import Pending
from .tapes.tape import Tape, has_storage

NO_LOADS = 1 << 30
PROBE = 1 << 40  # request number from which prompts are looked for
EVERY = 8  # entries, after which they are
# Times by which copies to host take longer, by the tape's seed; the last ends when it is waited for
LATER = (0, 400, LOST)
RULE = "HOST-TIER: A host tier costs no device hit: the same events find the same on device."


class HostCosts(AssertionError):
    """The core with a host tier answers otherwise than the one without."""

    def __init__(self, difference: str) -> None:
        super().__init__(f"{RULE}\n    {difference}")


def applies(tape: Tape) -> bool:
    """Whether the rule holds of the tape's configuration."""
    config = tape.config
    if not config.has_host or len(config.components) > 1 or has_storage(tape):
        return False
    if config.ttl_periods or config.pin_pages or config.pin_host_pages:
        return False  # a copy to host keeps what would expire, and a pin may want a host
    policy = registry.load(registry.EVICTION_POLICIES, config.eviction_policy).policy()
    return is_recency(policy)


class HostedHand(Hand):
    """Plays on a core with a host tier; the one without gets the same events."""

    def __init__(self, tape: Tape) -> None:
        config = replace(tape.config, load_threshold_pages=NO_LOADS)
        super().__init__(config, tape.order, Watch("off"), remember=False, pairs=tape.pairs)
        bare = without_host(config)
        self.bare = Driver(Core(bare), self)
        self.passes: dict[int, int] = {}  # flights of the core without host, by those of the other
        self.waits = self.probed = 0
        self._later = LATER[tape.seed % len(LATER)]

    def submit(self, action: Action) -> None:
        super().submit(action)
        if isinstance(action, Backup):
            self.pending[-1] = self.pending[-1]._replace(due=self.pending[-1].due + self._later)

    def feed(self, event: Event) -> list[Outcome]:
        if isinstance(event, BackupDone | LoadDone):
            return super().feed(event)
        if isinstance(event, Flushed):
            for begun in self._copies():
                self._end(begun)
        expected = self._without_host(event)
        found = super().feed(event)
        if isinstance(event, EvictWanted):
            self._evict_as_much(event)
        while copy := self._copy_awaited(found):
            self._end(copy)
            found = super().feed(event)
        self._compare(event, expected, found)
        return found

    def _without_host(self, event: Event) -> list[Outcome]:
        """The answer of the core that has no host."""
        if isinstance(event, PrefillDone):
            event = event._replace(flight=self.passes.pop(event.flight))
        return self.bare.feed(event)

    def _copy_awaited(self, found: list[Outcome]) -> Pending | None:
        """The copy to host that a refusal waits for, or may wait for beside another reply."""
        for item in found:
            if isinstance(item, Refused) and item.reason == "writing_back":
                copies = self._copies()
                named = (one for one in copies if one.number == item.after)
                return next(named, copies[0] if copies else None)
        return None

    def _copies(self) -> list[Pending]:
        """The copies to host that are under way, oldest first."""
        copies = [one for one in self.pending if isinstance(one.action, Backup)]
        return sorted(copies, key=lambda one: one.number)

    def _end(self, one: Pending) -> None:
        self.waits += 1
        self.take(one)
        self.finish()

    def _evict_as_much(self, event: EvictWanted) -> None:
        """Ends copies and asks again until as many pages are free as without a host."""
        if event.tier != Tier.DEVICE or event.component not in self.config.components:
            return
        at = self.config.components.index(event.component)
        here, bare = (core.view.pool(Tier.DEVICE, at) for core in (self.core, self.bare.core))
        while here.free < bare.free:
            copies = self._copies()
            if not copies:
                return
            self._end(copies[0])
            super().feed(event._replace(pages=bare.free - here.free))

    def _compare(self, event: Event, expected: list[Outcome], found: list[Outcome]) -> None:
        if _said(expected) != _said(found):
            raise HostCosts(f"{event}: without a host {_said(expected)}, with one {_said(found)}")
        for one, other in zip(_passes(expected), _passes(found), strict=True):
            self.passes[other] = one

    def probe(self) -> None:
        """Compares how many pages of each recent prompt both find on device."""
        for tokens, namespace in dict.fromkeys((tuple(one), space) for one, space in self.past):
            self.probed += 1
            key, number = self.key_of([*tokens], namespace), PROBE + self.probed
            found = []
            for driver in (self.bare, self._silent):
                matched, *_ = driver.feed(Arrived(number, key, len(tokens) + 1, key.pages))
                driver.feed(Aborted(number))
                found.append(matched.device_pages if isinstance(matched, Matched) else -1)
            if found[0] != found[1]:
                raise HostCosts(
                    f"a prompt of {key.pages} pages: without a host {found[0]} pages on device, "
                    f"with one {found[1]}"
                )


def calm(tape: Tape) -> Tape:
    """The tape with no faults but actions that fail: the others are events of their own, at times
    that depend on copies."""
    entries = tuple(
        one._replace(
            acts=tuple(
                act if isinstance(KINDS.get(act.fault), Error) else act._replace(fault="")
                for act in one.acts
            )
        )
        for one in tape.entries
    )
    return replace(tape, entries=entries)


def without_host(config: Config) -> Config:
    none = tuple(0 for _ in config.host_pages)
    return replace(config, host_pages=none, exchange_pages=())


def _passes(outcomes: list[Outcome]) -> list[int]:
    return [item.flight for item in outcomes if isinstance(item, Prefill)]


def _said(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    """What a scheduler learns from an answer."""
    told: list[tuple[object, ...]] = []
    for item in outcomes:
        if isinstance(item, Refused):
            told.append(("refused", item.reason, item.preempt, item.component))
        elif isinstance(item, Admitted):
            told.append(("admitted", item.device_pages, item.host_pages, item.tokens_to_compute))
        elif isinstance(item, Matched):
            told.append(("matched", item.device_pages))
        elif isinstance(item, Prefill):
            told.append(("pass", item.start_token, item.end_token))
        elif isinstance(item, Granted):
            told.append(("granted",))
    return told
