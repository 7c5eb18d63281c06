"""An engine for one request at a time: it asks the core for pages, and keeps what a model computed.

    admit    match, wait for a prefetch, take pages, load, and read the past from them
    keep     write what was computed to the pages, and give them to the tree
    sweep    give the pages of a request back that was not kept

It takes the replies of copies and stores, also between calls: then a thread does, until nothing is
under way, so what was computed reaches host memory and the store without another call.
"""

import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from hicache import registry
from hicache.clock import Clock, uninterrupted
from hicache.core import events
from hicache.core.actions import Admitted, Granted, Matched, Outcome, Prefetched, Prefill, Refused
from hicache.core.components import settings_for
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError, Detached
from hicache.core.node import TransferKind
from hicache.core.plugins import Shape
from hicache.core.types import Key
from hicache.devices.base import DeviceOptions
from hicache.memory.pools import stored_pools
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import CheckOptions, TieredExecutor, driver_of, first_of
from hicache.runtime.storage import Attachment, StorageExecutor, StoredPages
from hicache.storage.base import Losses, StorageOptions
from hicache.storage.keys import Context

from .identity import Computation
from .layers import STATE, Described, New
from .live import LiveCache, PagedRows, RequestPages

PAUSE_S = 0.0005
_PATIENCE_S = 5.0  # for copies under way that free the pages of a request
_DETACH_S = 5.0
_AGAIN = ("writing_back", "arriving", "fetching")
_LAYOUT = DeviceOptions(layout="page_first_direct", io_backend="direct")
_SLOTS = 3  # of a running request: its working state and two checkpoints
_log = logging.getLogger("hicache")


class Options(NamedTuple):
    """What the user chose: arguments of `PrefixCache`."""

    device_tokens: int
    host_tokens: int
    storage: str | None
    timeout_s: float
    page_size: int
    interval_tokens: int
    wait_s: float
    check: str
    check_dir: str


class Request(NamedTuple):
    """A prompt, and what computes it."""

    tokens: Sequence[int]
    computation: Computation
    described: Described


class Admission(NamedTuple):
    """A request that has pages. hits: reused tokens by tier."""

    request: Request
    action: Prefill
    pages: RequestPages
    live: LiveCache
    hits: dict[str, int]


class Engine:
    """One core with its device and store. One thread may call it at a time, with `lock` held."""

    def __init__(
        self,
        place: torch.device,
        described: Described,
        name: str,
        revision: str,
        options: Options,
        clock: Clock,
    ) -> None:
        """Builds everything, with an attached store if an address is given. place: where the model
        is. name: of the model. revision: of the weights. Raises CallerError for sizes that cannot
        be used."""
        size = self._size = options.page_size
        window, components = described.window_tokens, described.components
        least = (-(-window // size) + 1) * size
        if window and options.device_tokens < least:
            raise CallerError(
                f"device_tokens: expected at least {least} for a model with a window of {window} "
                f"tokens, found {options.device_tokens}"
            )
        interval = -(-options.interval_tokens // size) * size

        def pages_of(tokens: int, slots: int) -> dict[str, int]:
            states = tokens // interval + slots
            return {
                component: states if component == STATE else tokens // size
                for component in components
            }

        device_pages = pages_of(options.device_tokens, _SLOTS + 1)
        host_pages = pages_of(options.host_tokens, int(options.host_tokens >= size))
        config = Config(
            page_size=size,
            device_pages=tuple(device_pages.values()),
            host_pages=tuple(host_pages.values()),
            components=components,
            settings=settings_for(components, Shape(window, interval)),
        )
        self._device = _device(place, described.model, size, device_pages, host_pages)
        try:
            self._controller, executor = TransferController(self._device), StorageExecutor()
            checks = CheckOptions(options.check, options.check_dir, clock.now_s, _log.warning)
            tiers = TieredExecutor(self._controller, executor)
            self.driver = driver_of(Core(config), tiers, checks)
            context = Context(name, revision, size, "tokens", described.model.pools)
            stored = StoredPages(context, stored_pools(self._device.arena))
            self._attachment = Attachment(self.driver, executor, stored, clock.now_s, _log.warning)
            if options.storage is not None:
                self._attachment.attach(options.storage, StorageOptions(options.timeout_s))
        except BaseException:
            self._device.close()
            raise
        self._view = self.driver.core.view
        self._place, self._wait_s, self.clock = place, options.wait_s, clock
        self.lock = threading.Lock()
        self.closed = False
        self._refused, self._left = 0, 0
        self._done = False  # what closing it has returned
        self._carrier: threading.Thread | None = None
        self._crash: BaseException | None = None
        self._rows = PagedRows(described, self._device.arena, place)
        self._most_tokens = config.device_pages[0] * size
        self._interval = interval if STATE in components else 0
        self._requests = 0
        self._fetched: dict[int, int] = {}

    # -- what is under way

    def feed(self, event: Any) -> list[Outcome]:
        """Pass one event to the core, and begin what it asks for."""
        self.check()
        with uninterrupted():
            outcomes = self.driver.feed(event)
            self.driver.executor.start()
            self._note(outcomes)
        return outcomes

    def poll(self) -> bool:
        """Feed the core every reply that is ready. Lets a moment pass if there is none, and returns
        whether there was one."""
        outcomes: list[Outcome] = []
        with uninterrupted(), suppress(Detached):
            self.driver.executor.start()
            outcomes = self.driver.poll()
            self.driver.executor.start()
            self._note(outcomes)
        if not outcomes:
            self.clock.sleep(PAUSE_S)
        return bool(outcomes)

    def renew(self) -> None:
        """If the store was out and came back, forget what it is believed to have."""
        if self._attachment.was_out:
            with uninterrupted():
                self._note(self._attachment.renew())

    @property
    def busy(self) -> bool:
        """Whether copies or stores are under way."""
        return bool(self._view.transfers) and not self.driver.detached

    def settle(self, timeout_s: float) -> bool:
        """Carry on until nothing is under way. Returns whether all has ended, in a sound core."""
        deadline = self.clock.now_s() + timeout_s
        while self.busy and (self.poll() or self.clock.now_s() < deadline):
            pass
        return not self.busy and not self.driver.detached

    def flush(self, timeout_s: float) -> bool:
        """Settle. Returns whether all that is in memory was also stored, if there is a store, and
        nothing was refused since the last flush."""
        settled = self.settle(timeout_s)
        refused, self._refused = self._refused, self.losses.writes_refused
        return settled and refused == self._refused and not self.unstored_tokens

    @property
    def losses(self) -> Losses:
        """What the store did not do, also of a closed cache."""
        return self._attachment.losses

    @property
    def unstored_tokens(self) -> int:
        """Tokens in memory that the store is not known to have; 0 without a store."""
        view = self._view
        if self._attachment.store is None:
            return self._left
        pages = (
            node.end_page - node.parent.end_page
            for node in view.nodes()
            if node.parent is not None and not view.believed(node)
        )
        self._left = sum(pages) * view.config.page_size
        return self._left

    def carry_on(self) -> None:
        """Let a thread carry on what is under way after this call."""
        if self._carrier is None and self.busy and not self.closed:
            self._carrier = threading.Thread(target=self._carry, name="hicache", daemon=True)
            self._carrier.start()

    def check(self) -> None:
        """Raises what the thread between calls has met."""
        if self._crash is not None:
            raise self._crash

    def close(self, timeout_s: float) -> bool:
        """Wait for the call under way, for copies and stores, detach the store and end all threads.
        Returns whether everything was stored."""
        if not self.lock.acquire(timeout=timeout_s):
            return False
        carrier = self._carrier
        try:
            if self.closed:
                return self._done
            self._done = self._crash is None and self.flush(timeout_s)
            self.closed = True
            if self._attachment.store is not None:
                with suppress(Detached):
                    self._note(self._attachment.detach(force=self.busy))
                if self.driver.detached:
                    self._attachment.detach(force=True)
                self.settle(_DETACH_S)
                self._attachment.wait_closed(_DETACH_S)
            self._device.close()
            return self._done
        finally:
            self.lock.release()
            if self.closed and carrier is not None:
                carrier.join()

    def _carry(self) -> None:
        while True:
            with self.lock:
                try:
                    if not self.closed:
                        self.poll()
                except BaseException as crash:  # for the next caller
                    self._crash = crash
                if self._crash is not None or self.closed or not self.busy:
                    self._carrier = None
                    return
            self.clock.sleep(PAUSE_S)

    # -- a request begins

    def admit(self, request: Request) -> Admission | None:
        """Give a prompt pages, with the rows of what it reuses. None if there are none for it, if a
        load has failed, or if it is so long that its rows are not those of a shorter one."""
        tokens = request.tokens
        if len(tokens) > request.described.longest:
            return None
        self.renew()
        number = self._arrived(request)
        wanted = events.AdmitWanted(number, min(len(tokens), self._most_tokens))
        outcomes = self._pages_for(wanted, self._wait_s)
        action = first_of(Prefill, outcomes)
        if action is None or not action.completes_prompt or not self._loaded(action.after):
            self.sweep()
            return None
        admitted = first_of(Admitted, outcomes)
        assert admitted is not None, "a request with a pass was admitted"
        pages, first = self._pages(action), action.start_token
        past = pages.read(first) if first else ()
        live = LiveCache(request.described, tokens[:first], past, len(tokens), self._interval)
        live.wanted = dict(action.states[0].checkpoints) if action.states else {}
        return Admission(request, action, pages, live, self._hits(admitted, action))

    def _loaded(self, transfers: Iterable[int]) -> bool:
        """Wait until loads have ended. Returns whether all have arrived."""
        for transfer in transfers:
            for device_event in self._controller.load_events(transfer):
                self._device.synchronize(device_event)
                if self._device.failed(device_event):
                    return False
        return True

    def _arrived(self, request: Request) -> int:
        """Tell the core of a request. Its key leaves the last token out, which is always computed:
        so the window or state that is stored is one that the same prompt can use."""
        self._requests += 1
        prompt = request.tokens[: self._most_tokens]
        key = Key.from_tokens(prompt[:-1], self._size, request.computation.name)
        self.feed(events.Arrived(self._requests, key, len(prompt), key.pages))
        return self._requests

    def _pages_for(self, event: Any, wait_s: float) -> list[Outcome]:
        """Ask for pages until there are some, or until the core refuses for good. wait_s: the
        longest that it waits for a prefetch."""
        began = self.clock.now_s()
        limited = False
        while True:
            outcomes = self.feed(event)
            refused = first_of(Refused, outcomes)
            waited = self.clock.now_s() - began
            if refused is None or refused.reason not in _AGAIN or waited > wait_s + _PATIENCE_S:
                return outcomes
            if refused.reason == "fetching" and waited > wait_s and not limited:
                limited = True
                self.feed(events.PrefetchLimitReached(refused.request))
            self.poll()

    def _hits(self, admitted: Admitted, action: Prefill) -> dict[str, int]:
        """Reused tokens by tier. What a prefetch brought is on host by now."""
        fetched = self._fetched.pop(admitted.request, 0) * self._size
        device = min(admitted.device_pages * self._size, action.start_token)
        below = action.start_token - device
        disk = min(fetched, below)
        return {"device": device, "host": below - disk, "disk": disk}

    def _pages(self, action: Prefill | Granted) -> RequestPages:
        return RequestPages(self._rows, action.tables, action.states[0] if action.states else None)

    # -- a request ends

    def keep(self, admission: Admission, final: bool) -> None:
        """Give what was computed to the tree, if that is the whole prompt. final: also what was
        generated after it."""
        action, live = admission.action, admission.live
        prompt = action.end_token
        end = min(self._most_tokens, live.count, live.fitting)
        if end < prompt:
            return
        tokens, first = live.tokens(), action.start_token
        new = live.taken()
        admission.pages.write(new, first, first, prompt)
        for depth, page in live.wanted.items():
            admission.pages.write_states(live.states[depth], page)
        self._synchronize()
        self.feed(events.PrefillDone(action.transfer))
        if not final or end == prompt or not self._grown(admission, new, end):
            end = prompt
        name = admission.request.computation.name
        self.feed(events.Finished.from_tokens(action.request, tokens[:end], self._size, name))

    def _grown(self, admission: Admission, new: Sequence[New], end: int) -> bool:
        """Give what was generated pages, and write it. Returns whether that could be done."""
        prompt, live = admission.action.end_token, admission.live
        depth = end // self._interval * self._interval if self._interval else 0
        if depth > prompt and depth not in live.states:
            return False  # the core would take the state of this depth for one that is there
        wanted = events.PagesWanted(admission.action.request, end, prompt)
        granted = first_of(Granted, self._pages_for(wanted, 0.0))
        if granted is None:
            return False
        pages = self._pages(granted)
        pages.write(new, admission.action.start_token, prompt, end)
        if depth > prompt:
            slot = granted.states[0].checkpoint_slots[depth // self._interval % 2]
            if slot >= 0:
                pages.write_states(live.states[depth], slot)
        self._synchronize()
        return True

    def sweep(self) -> None:
        """End a request that was not kept, and its pass. It gives its pages back."""
        self._synchronize()
        transfers = self._view.transfers.values()
        passes = [transfer.id for transfer in transfers if transfer.kind is TransferKind.PREFILL]
        for number in list(self._view.requests):
            self.feed(events.Aborted(number))
        for transfer in passes:
            self.feed(events.PrefillDone(transfer, False))
        self._fetched.clear()

    # -- without a request

    def match(self, request: Request) -> int:
        """Tokens of a prompt that would be reused now. Brings those in storage to host."""
        if len(request.tokens) > request.described.longest:
            return 0
        number = self._arrived(request)
        deadline = self.clock.now_s() + self._wait_s
        while self._view.requests[number].prefetch and self.clock.now_s() < deadline:
            self.poll()
        matched = first_of(Matched, self.feed(events.MatchWanted(number)))
        assert matched is not None, "the core answers what would hit"
        return (matched.device_pages + matched.host_pages) * self._size

    def clear(self, storage: bool) -> None:
        """Forget every page. Copies under way are waited for."""
        self.settle(_PATIENCE_S)
        self.feed(events.Flushed(storage))

    def _note(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Prefetched):
                known = self._fetched.get(outcome.request, 0)
                self._fetched[outcome.request] = known + outcome.fetched_pages

    def _synchronize(self) -> None:
        """Wait until the model's own work has reached the pages."""
        if self._place.type == "cuda":
            torch.cuda.current_stream(self._place).synchronize()


def _device(place: torch.device, *of: Any) -> Any:
    """The device where the model is. of: the model, tokens of a page, and pages of both tiers."""
    module = registry.load("hicache.devices", place.type)
    if place.type == "cpu":
        return module.CpuDevice(*of, _LAYOUT)
    return module.CudaDevice(*of, _LAYOUT, accelerator=module.Accelerator(place.index or 0))
