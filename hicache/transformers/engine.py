"""An engine for one request at a time: it asks the core for pages, and keeps what a model computed.

    admit    match, wait for a prefetch, take pages; the past then arrives layer by layer
    keep     write what was computed to the pages, and give them to the tree
    sweep    give the pages of a request back that was not kept

Does not run the model, see `cache`, or take replies between calls, see `ongoing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from hicache.clock import Clock
from hicache.core.actions import (
    Admitted,
    Evicted,
    Granted,
    Matched,
    Outcome,
    Prefetched,
    Prefill,
    Refused,
    StateSlots,
)
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    Event,
    Finished,
    Flushed,
    MatchWanted,
    PagesWanted,
    PrefetchLimitReached,
    PrefillDone,
)
from hicache.core.node import FlightKind
from hicache.core.types import Key, Tier
from hicache.runtime.driver import first_of

from .building import Parts
from .describing import Described
from .identity.computation import Computation
from .layers.base import STATE, New, Span
from .live import LiveCache
from .moving import PagedRows, RequestPages, fill, shape, taken, write, write_states
from .ongoing import Ongoing

_PATIENCE_S = 5.0  # for copies under way that free the pages of a request
_AGAIN = ("writing_back", "arriving", "fetching")


class LoadFailed(Exception):
    """Pages did not arrive on the device."""


class Asked(NamedTuple):
    """A prompt, and what computes it. longest: a prompt whose rows depend on its tokens alone."""

    tokens: Sequence[int]
    computation: Computation
    described: Described
    longest: int


class Admission:
    """A request that has pages. hits: reused tokens by tier. live: a cache for each model.
    waited_s: for storage and loads."""

    def __init__(
        self, number: int, asked: Asked, action: Prefill, pages: RequestPages, hits: dict[str, int]
    ) -> None:
        self.number, self.asked, self.action = number, asked, action
        self.pages, self.hits = pages, hits
        self.live: list[LiveCache] = []
        self.waited_s = 0.0

    @property
    def depths(self) -> dict[int, int]:
        """Pages for states, by depth in tokens."""
        return dict(self.action.states[0].checkpoints) if self.action.states else {}


class Engine:
    """One core with its device and store. One thread may call it at a time, with the lock of
    `ongoing` held."""

    def __init__(self, parts: Parts, place: torch.device, wait_s: float, clock: Clock) -> None:
        """place: where the model is. wait_s: the longest that a request waits for storage."""
        self.described = parts.described
        self.ongoing = Ongoing(parts, clock, self._note)
        self._view = parts.driver.core.view
        self._device, self._controller = parts.device, parts.controller
        self._place, self._wait_s, self._clock = place, wait_s, clock
        self._rows = PagedRows(parts.described, parts.device.arena)
        config = self._view.config
        self._size = config.page_size
        self._positional = [one for one in config.components if one != STATE]
        self._most_tokens = config.device_pages[0] * self._size
        self._interval = parts.interval
        self._requests = 0
        self._fetched: dict[int, int] = {}
        self.evicted = {Tier.DEVICE: 0, Tier.HOST: 0}  # pages of any component

    # -- a request begins

    def admit(self, asked: Asked) -> Admission | None:
        """Give a prompt pages. None if there are none for it, or if it is so long that its rows
        are not those of a shorter one."""
        if len(asked.tokens) > asked.longest:
            return None
        began = self._clock.now_s()
        self.ongoing.renew()
        prompt = asked.tokens[: self._most_tokens]
        number = self._arrived(asked)
        outcomes = self._asked(AdmitWanted(number, len(prompt)), self._wait_s)
        action = first_of(Prefill, outcomes)
        if action is None or not action.completes_prompt:
            self.sweep()
            return None
        admitted = first_of(Admitted, outcomes)
        assert admitted is not None, "a request with a pass was admitted"
        pages = self._pages(action.tables, action.states)
        found = Admission(number, asked, action, pages, self._hits(admitted, action))
        found.live = [self._live(found, at) for at in range(len(asked.described.caches))]
        found.waited_s = self._clock.now_s() - began
        return found

    def _arrived(self, asked: Asked) -> int:
        """Tell the core of a request. Its key leaves the last token out, which is always computed:
        so the window or state that is stored is one that the same prompt can use."""
        self._requests += 1
        prompt = asked.tokens[: self._most_tokens]
        key = Key.from_tokens(prompt[:-1], self._size, asked.computation.name)
        self.ongoing.feed(Arrived(self._requests, key, len(prompt), key.pages))
        return self._requests

    def _asked(self, event: Event, wait_s: float) -> list[Outcome]:
        """Ask for pages until there are some, or until the core refuses for good. wait_s: the
        longest that it waits for a prefetch."""
        began = self._clock.now_s()
        limited = False
        while True:
            outcomes = self.ongoing.feed(event)
            refused = first_of(Refused, outcomes)
            waited = self._clock.now_s() - began
            if refused is None or refused.reason not in _AGAIN or waited > wait_s + _PATIENCE_S:
                return outcomes
            if refused.reason == "fetching" and waited > wait_s and not limited:
                limited = True
                self.ongoing.feed(PrefetchLimitReached(refused.request))
            self.ongoing.poll()

    def _hits(self, admitted: Admitted, action: Prefill) -> dict[str, int]:
        """Reused tokens by tier. What a prefetch brought is on host by now."""
        fetched = self._fetched.pop(admitted.request, 0) * self._size
        device = min(admitted.device_pages * self._size, action.start_token)
        below = action.start_token - device
        disk = min(fetched, below)
        return {"device": device, "host": below - disk, "disk": disk}

    def _pages(self, tables: Sequence[Any], states: Sequence[StateSlots]) -> RequestPages:
        slots = states[0] if states else None
        return RequestPages(self._rows, self._positional, tables, slots, self._place)

    def _live(self, admission: Admission, at: int) -> LiveCache:
        """A cache of one model with the reused tokens, whose rows come when a layer is read."""
        action, asked = admission.action, admission.asked
        described = asked.described.caches[at]
        first = action.start_token
        span = Span(first, action.end_token, self._size)

        def filled(place: int, layer: Any) -> None:
            one = described.layers[place]
            began = self._clock.now_s()
            self._arrive(action.after, one.number)
            admission.waited_s += self._clock.now_s() - began
            fill(admission.pages, one, layer, span, None)

        live = LiveCache(
            described,
            asked.tokens[:first],
            len(asked.tokens),
            asked.longest,
            filled if first else None,
            self._interval,
            self._clock,
        )
        live.wanted = set(admission.depths)
        if first:
            shape(described, live, first, (), self._place)
        return live

    def _arrive(self, flights: Iterable[int], layer: int) -> None:
        """Wait until loads have delivered a layer."""
        for flight in flights:
            marks = self._controller.load_marks(flight)
            if marks:
                self._device.synchronize(marks[layer])
                if self._device.failed(marks[layer]):
                    raise LoadFailed

    # -- a request ends

    def keep(self, admission: Admission, final: bool) -> None:
        """Give what was computed to the tree, if that is the whole prompt. final: also what was
        generated after it."""
        action, live = admission.action, admission.live
        prompt = action.end_token
        end = min(self._most_tokens, *(min(one.count, one.fitting) for one in live))
        if end < prompt:
            return
        for one in live:
            one.arrive_all()
        tokens = live[0].tokens()
        new = [taken(one.described, one, self._span(action, one)) for one in live]
        self._write(admission.pages, admission, new, action.start_token, prompt)
        for depth, page in admission.depths.items():
            self._write_states(admission.pages, live, depth, page)
        self._synchronize()
        self.ongoing.feed(PrefillDone(action.flight))
        if not final or end == prompt or not self._grown(admission, new, end):
            end = prompt
        name = admission.asked.computation.name
        self.ongoing.feed(Finished.from_tokens(admission.number, tokens[:end], self._size, name))

    def _grown(self, admission: Admission, new: Sequence[Sequence[New]], end: int) -> bool:
        """Give what was generated pages, and write it. Returns whether that could be done."""
        prompt, live = admission.action.end_token, admission.live
        depth = end // self._interval * self._interval if self._interval else 0
        if depth > prompt and any(depth not in one.states for one in live):
            return False  # the core would take the state of this depth for one that is there
        granted = first_of(Granted, self._asked(PagesWanted(admission.number, end, prompt), 0.0))
        if granted is None:
            return False
        pages = self._pages(granted.tables, granted.states)
        self._write(pages, admission, new, prompt, end)
        if depth > prompt:
            slot = granted.states[0].checkpoint_slots[depth // self._interval % 2]
            if slot >= 0:
                self._write_states(pages, live, depth, slot)
        self._synchronize()
        return True

    def _span(self, action: Prefill, live: LiveCache) -> Span:
        """The tokens that one model has computed."""
        return Span(action.start_token, live.count, self._size)

    def _write(
        self,
        pages: RequestPages,
        admission: Admission,
        new: Sequence[Sequence[New]],
        first: int,
        end: int,
    ) -> None:
        """Write rows of tokens first..end-1 of all models. new: what they computed."""
        for live, rows in zip(admission.live, new, strict=True):
            span = self._span(admission.action, live)
            write(pages, live.described, rows, span, Span(first, end, self._size))

    def _write_states(
        self, pages: RequestPages, live: Sequence[LiveCache], depth: int, page: int
    ) -> None:
        for one in live:
            write_states(pages, one.described, one.states[depth], page)

    def sweep(self) -> None:
        """End a request that was not kept, and its pass. It gives its pages back."""
        self._synchronize()
        flights = self._view.flights.values()
        passes = [flight.id for flight in flights if flight.kind is FlightKind.PREFILL]
        for number in list(self._view.requests):
            self.ongoing.feed(Aborted(number))
        for flight in passes:
            self.ongoing.feed(PrefillDone(flight, False))
        self._fetched.clear()

    # -- without a request

    def match(self, asked: Asked) -> int:
        """Tokens of a prompt that would be reused now. Brings those in storage to host."""
        if len(asked.tokens) > asked.longest:
            return 0
        number = self._arrived(asked)
        deadline = self._clock.now_s() + self._wait_s
        while self._view.requests[number].prefetch and self._clock.now_s() < deadline:
            self.ongoing.poll()
        matched = first_of(Matched, self.ongoing.feed(MatchWanted(number)))
        assert matched is not None, "the core answers what would hit"
        return (matched.device_pages + matched.host_pages) * self._size

    def clear(self, storage: bool) -> None:
        """Forget every page. Copies under way are waited for."""
        self.ongoing.settle(_PATIENCE_S)
        self.ongoing.feed(Flushed(storage))

    def used_bytes(self) -> dict[str, int]:
        """Bytes of the pages in use, by tier; on disk, all that the store has."""
        config, found = self._view.config, {"disk": self.ongoing.look()}
        for tier, name, sizes in (
            (Tier.DEVICE, "device", config.device_pages),
            (Tier.HOST, "host", config.host_pages),
        ):
            found[name] = sum(
                (pages - ledger.free) * pool.plan.page_bytes
                for component, pages, ledger in zip(
                    config.components, sizes, self._view.pools(tier), strict=True
                )
                for pool in self._device.arena.pools(tier, component)
            )
        return found

    def _note(self, outcomes: list[Outcome]) -> None:
        for one in outcomes:
            if isinstance(one, Prefetched):
                known = self._fetched.get(one.request, 0)
                self._fetched[one.request] = known + one.fetched_pages
            elif isinstance(one, Evicted):
                self.evicted[one.tier] += len(one.pages)

    def _synchronize(self) -> None:
        """Wait until the model's own work has reached the pages."""
        if self._place.type == "cuda":
            torch.cuda.current_stream(self._place).synchronize()
