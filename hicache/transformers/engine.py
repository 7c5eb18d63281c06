"""An engine for one request at a time: it asks the core for pages, and keeps what a model computed.

    admit    match, wait for a prefetch, take pages; the past then arrives layer by layer
    keep     write what was computed to the pages, and give them to the tree
    drop     give the pages back

Between calls a thread carries on what is under way, until every copy to host and storage has ended.
Does not run the model; see `cache`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from hicache.core.actions import (
    Admitted,
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
    Finished,
    Flushed,
    MatchWanted,
    PagesWanted,
    PrefetchLimitReached,
    PrefillDone,
)
from hicache.core.radix.node import FlightKind
from hicache.core.types import Tier

from .building import Parts
from .interrupts import uninterrupted
from .layers.base import STATE, Span
from .live import LiveCache
from .moving import RequestPages, fill, shape, taken, write, write_states
from .rows import PagedRows

_PAUSE_S = 0.0005
_PATIENCE_S = 5.0  # for copies under way that free the pages of a request
_AGAIN = ("writing_back", "arriving", "fetching")


class LoadFailed(Exception):
    """Pages did not arrive on the device."""


class Admission:
    """A request that has pages. hits: reused tokens by tier. live: a cache for each model."""

    def __init__(
        self, number: int, action: Prefill, pages: RequestPages, hits: dict[str, int]
    ) -> None:
        self.number, self.action, self.pages, self.hits = number, action, pages, hits
        self.live: list[LiveCache] = []
        self.waited_s = 0.0
        self.passing = self.running = True  # its pass, and itself, as the core knows them

    @property
    def depths(self) -> dict[int, int]:
        """Pages for states, by depth in tokens."""
        return dict(self.action.states[0].checkpoints) if self.action.states else {}


class Engine:
    """One core with its device and store. One thread may call it at a time, with `lock` held."""

    def __init__(self, parts: Parts, place: torch.device, wait_s: float) -> None:
        """place: where the model is. wait_s: the longest that a request waits for storage."""
        self.lock = threading.Lock()
        self.described, self.device = parts.described, parts.device
        self.driver, self.attachment = parts.driver, parts.attachment
        self._controller = parts.controller
        self._wait_s = wait_s
        self._rows = PagedRows(parts.described, parts.device.arena)
        self._place = place
        config = parts.driver.core.view.config
        self._size = config.page_size
        self._positional = [one for one in config.components if one != STATE]
        self._most_tokens = config.device_pages[0] * self._size
        self._interval = self._interval_of()
        self._requests = 0
        self._fetched: dict[int, int] = {}
        self._carrier: threading.Thread | None = None
        self._crash: BaseException | None = None
        self.closed = False

    def _interval_of(self) -> int:
        """Tokens between states; 0 for a model without states."""
        if STATE not in self.described.components:
            return 0
        state: Any = self.driver.core.view.components[self.described.components.index(STATE)]
        interval: int = state.interval
        return interval

    # -- one request

    def admit(self, prompt: Sequence[int]) -> Admission | None:
        """Give a prompt pages. None if there are none for it."""
        if self.attachment.was_out:
            self._note(self.attachment.renew())
        prompt = prompt[: self._most_tokens]
        self._requests += 1
        number = self._requests
        began = time.perf_counter()
        self._feed(Arrived.from_tokens(number, prompt, self._size))
        try:
            outcomes = self._admitted(number, len(prompt))
        except BaseException:
            self._give_up(number)
            raise
        if outcomes is None:
            self._give_up(number)
            return None
        [admitted] = [one for one in outcomes if isinstance(one, Admitted)]
        [action] = [one for one in outcomes if isinstance(one, Prefill)]
        found = Admission(
            number, action, self._pages(action.tables, action.states), self._hits(admitted, action)
        )
        found.live = [self._live(found, at, prompt) for at in range(len(self.described.caches))]
        found.waited_s = time.perf_counter() - began
        return found

    def _admitted(self, number: int, chunk: int) -> list[Outcome] | None:
        """Ask until the request is admitted. None if it waits in vain."""
        began = time.monotonic()
        limited = False
        while True:
            outcomes = self._feed(AdmitWanted(number, chunk))
            refused = outcomes[-1] if outcomes else None
            if not isinstance(refused, Refused):
                return outcomes
            waited = time.monotonic() - began
            if refused.reason == "fetching" and not limited and waited > self._wait_s:
                limited = True
                self._feed(PrefetchLimitReached(number))
            elif refused.reason not in _AGAIN or waited > self._wait_s + _PATIENCE_S:
                return None
            if not self._poll():
                time.sleep(_PAUSE_S)

    def _give_up(self, number: int) -> None:
        """End a request that was not admitted, or whose pass was not begun."""
        flights = [
            flight.id
            for flight in self.driver.core.view.flights.values()
            if flight.kind is FlightKind.PREFILL
        ]
        self._feed(Aborted(number))
        for flight in flights:
            self._feed(PrefillDone(flight, False))
        self._fetched.pop(number, None)

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

    def _live(self, admission: Admission, at: int, prompt: Sequence[int]) -> LiveCache:
        """A cache of one model with the reused tokens, whose rows come when a layer is read."""
        action, described = admission.action, self.described.caches[at]
        first = action.start_token
        span = Span(first, action.end_token, self._size)

        def filled(place: int, layer: Any) -> None:
            one = described.layers[place]
            began = time.perf_counter()
            self._arrive(action.after, one.number)
            admission.waited_s += time.perf_counter() - began
            fill(admission.pages, one, layer, span, None)

        live = LiveCache(described, prompt, first, filled if first else None, self._interval)
        live.wanted = set(admission.depths)
        if first:
            shape(described, live, first, (), self._place)
        return live

    def _arrive(self, flights: Iterable[int], layer: int) -> None:
        """Wait until loads have delivered a layer."""
        for flight in flights:
            marks = self._controller.load_marks(flight)
            if marks:
                self.device.synchronize(marks[layer])
                if self.device.failed(marks[layer]):
                    raise LoadFailed

    def keep(self, admission: Admission, final: bool) -> None:
        """Give what was computed to the tree. final: also what was generated after the prompt."""
        action, live = admission.action, admission.live
        computed = min(one.count for one in live)
        tokens = live[0].tokens()[: min(computed, self._most_tokens)]
        prompt = action.end_token
        if computed < prompt or not action.completes_prompt:
            self.drop(admission)
            return
        for one in live:
            one.arrive_all()
        span = Span(action.start_token, max(one.count for one in live), self._size)
        new = [taken(one.described, one, span._replace(end=one.count)) for one in live]
        for at, rows in enumerate(new):
            part = span._replace(end=prompt)
            write(admission.pages, self.described.caches[at], rows, span, part)
        for depth, page in admission.depths.items():
            self._write_states(admission.pages, live, depth, page)
        self._synchronize()
        self._feed(PrefillDone(action.flight))
        admission.passing = False
        end = len(tokens)
        granted = self._granted(admission, end) if final and end > prompt else None
        if granted is not None:
            pages = self._pages(granted.tables, granted.states)
            for at, rows in enumerate(new):
                part = span._replace(first=prompt, end=end)
                write(pages, self.described.caches[at], rows, span, part)
            depth = self._last_depth(end)
            if depth > prompt:
                slot = granted.states[0].checkpoint_slots[depth // self._interval % 2]
                if slot >= 0:
                    self._write_states(pages, live, depth, slot)
            self._synchronize()
        else:
            end = prompt
        self._feed(Finished.from_tokens(admission.number, tokens[:end], self._size))
        admission.running = False

    def _granted(self, admission: Admission, end: int) -> Granted | None:
        """Pages for what was generated. None if there are none, or if a state is missing that the
        core would expect."""
        prompt = admission.action.end_token
        depth = self._last_depth(end)
        if depth > prompt and any(depth not in one.states for one in admission.live):
            return None
        asked = PagesWanted(admission.number, end, prompt)
        began = time.monotonic()
        while True:
            [*_, last] = self._feed(asked)
            if isinstance(last, Granted):
                return last
            waited = time.monotonic() - began
            if not isinstance(last, Refused) or last.reason not in _AGAIN or waited > _PATIENCE_S:
                return None
            if not self._poll():
                time.sleep(_PAUSE_S)

    def _last_depth(self, end: int) -> int:
        """The last depth at which a state is kept; 0 for a model without states."""
        return end // self._interval * self._interval if self._interval else 0

    def _write_states(
        self, pages: RequestPages, live: Sequence[LiveCache], depth: int, page: int
    ) -> None:
        for at, one in enumerate(live):
            write_states(pages, self.described.caches[at], one.states[depth], page)

    def drop(self, admission: Admission) -> None:
        """Give the pages of a request back, and keep nothing that it has not given to the tree."""
        self._synchronize()
        if admission.running:
            admission.running = False
            self._feed(Aborted(admission.number))
        if admission.passing:
            admission.passing = False
            self._feed(PrefillDone(admission.action.flight, False))

    def match(self, prompt: Sequence[int]) -> int:
        """Tokens of a prompt that would be reused now. Brings those on disk to host."""
        self._requests += 1
        number = self._requests
        self._feed(Arrived.from_tokens(number, prompt[: self._most_tokens], self._size))
        deadline = time.monotonic() + self._wait_s
        view = self.driver.core.view
        while view.requests[number].prefetch and time.monotonic() < deadline:
            if not self._poll():
                time.sleep(_PAUSE_S)
        outcomes = self._feed(MatchWanted(number))
        [matched] = [one for one in outcomes if isinstance(one, Matched)]
        self._feed(Aborted(number))
        self._fetched.pop(number, None)
        return (matched.device_pages + matched.host_pages) * self._size

    # -- what goes on beside requests

    def clear(self, storage: bool) -> None:
        """Forget every page. Copies under way are waited for."""
        self.settle(_PATIENCE_S)
        self._feed(Flushed(storage))

    def settle(self, timeout_s: float) -> bool:
        """Carry on until nothing is under way. Returns whether that is so."""
        deadline = time.monotonic() + timeout_s
        while self.busy:
            if not self._poll():
                if time.monotonic() > deadline:
                    return False
                time.sleep(_PAUSE_S)
        return True

    @property
    def busy(self) -> bool:
        """Whether copies or stores are under way."""
        return bool(self.driver.core.view.flights)

    def used_bytes(self) -> dict[str, int]:
        """Bytes of the pages in use, by tier."""
        view = self.driver.core.view
        found = {}
        for tier, name in ((Tier.DEVICE, "device"), (Tier.HOST, "host")):
            found[name] = 0
            for component, pool in zip(view.config.components, view.pools(tier), strict=True):
                pools = self.device.arena.pools(tier, component)
                pages = view.config.device_pages if tier is Tier.DEVICE else view.config.host_pages
                used = pages[view.config.components.index(component)] - pool.free
                found[name] += used * sum(one.plan.page_bytes for one in pools)
        return found

    def carry_on(self) -> None:
        """Let a thread carry on what is under way after this call."""
        self.driver.executor.start()
        if self._carrier is None and self.busy and not self.closed:
            self._carrier = threading.Thread(target=self._carry, name="hicache", daemon=True)
            self._carrier.start()

    def _carry(self) -> None:
        while True:
            with self.lock:
                try:
                    came = self._poll() if not self.closed else []
                except BaseException as crash:  # told to the next caller
                    self._crash = crash
                if self._crash is not None or self.closed or not self.busy:
                    self._carrier = None
                    return
            if not came:
                time.sleep(_PAUSE_S)

    def close(self, timeout_s: float) -> bool:
        """Wait for copies and stores, detach the store and end all threads. Returns whether
        everything was stored."""
        with self.lock:
            if self.closed:
                return True
            done = self._crash is None and self.settle(timeout_s)
            self.closed = True
            if self.attachment.store is not None:
                self._note(self.attachment.detach(force=not done))
                self.settle(_PATIENCE_S)
                self.attachment.wait_closed(timeout_s)
            self.device.close()
            return done

    # -- events

    def _feed(self, event: Any) -> list[Outcome]:
        self.check()
        with uninterrupted():
            outcomes = self._note(self.driver.feed(event))
            self.driver.executor.start()
        return outcomes

    def _poll(self) -> list[Outcome]:
        with uninterrupted():
            self.driver.executor.start()
            outcomes = self._note(self.driver.poll())
            self.driver.executor.start()
        return outcomes

    def _note(self, outcomes: list[Outcome]) -> list[Outcome]:
        for one in outcomes:
            if isinstance(one, Prefetched):
                known = self._fetched.get(one.request, 0)
                self._fetched[one.request] = known + one.fetched_pages
        return outcomes

    def check(self) -> None:
        """Raises what the thread between calls has met."""
        if self._crash is not None:
            raise self._crash

    def _synchronize(self) -> None:
        """Wait until the model's own work has reached the pages."""
        if self._place.type == "cuda":
            torch.cuda.current_stream(self._place).synchronize()
