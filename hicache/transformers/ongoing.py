"""What goes on beside requests: replies of copies and stores, also between calls.

It feeds a core its events. Between calls a thread takes the replies until nothing is under way, so
what was computed reaches host memory and the store without another call. Does not know requests;
see `engine`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from hicache.clock import Clock, uninterrupted
from hicache.core.actions import Outcome
from hicache.storage.base import Losses

from .building import Parts

PAUSE_S = 0.0005
_DETACH_S = 5.0


class Ongoing:
    """One driver. One thread may call it at a time, with `lock` held. evicted: values that the
    store has evicted since it was opened here, as far as it counts them; see `look`."""

    def __init__(self, parts: Parts, clock: Clock, note: Callable[[list[Outcome]], None]) -> None:
        """note: gets all outcomes."""
        self.lock = threading.Lock()
        self.closed = False
        self.clock = clock
        self.driver, self._device = parts.driver, parts.device
        self._attachment = parts.attachment
        self._note = note
        self._losses, self._refused, self._left = Losses(), 0, 0
        self._done = False  # what closing it has returned
        self.evicted, self._before = 0, 0
        self.look()
        self.evicted, self._before = 0, self.evicted
        self._carrier: threading.Thread | None = None
        self._crash: BaseException | None = None

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
        with uninterrupted():
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
        return bool(self.driver.core.view.flights)

    def settle(self, timeout_s: float) -> bool:
        """Carry on until nothing is under way. Returns whether that is so."""
        deadline = self.clock.now_s() + timeout_s
        while self.busy and (self.poll() or self.clock.now_s() < deadline):
            pass
        return not self.busy

    def flush(self, timeout_s: float) -> bool:
        """Settle. Returns whether all that is in memory was also stored, if there is a store, and
        nothing was refused since the last flush."""
        settled = self.settle(timeout_s)
        refused, self._refused = self._refused, self.losses.writes_refused
        return settled and refused == self._refused and not self.unstored_tokens

    @property
    def losses(self) -> Losses:
        """What the store did not do; of a closed cache, what it had not done."""
        store = self._attachment.store
        if store is not None:
            self._losses = store.losses
        return self._losses

    def look(self) -> int:
        """Bytes that the store has. Notes what it has evicted."""
        store = self._attachment.store
        told = store.stats() if store is not None else {}
        self.evicted = max(self.evicted, int(told.get("evicted", 0)) - self._before)
        return int(told.get("bytes", 0))

    @property
    def unstored_tokens(self) -> int:
        """Tokens in memory that the store is not known to have; 0 without a store."""
        view = self.driver.core.view
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
        try:
            if self.closed:
                return self._done
            self._done = self._crash is None and self.flush(timeout_s)
            self.look()
            self.closed = True
            if self._attachment.store is not None:
                self._note(self._attachment.detach(force=self.busy))
                self.settle(_DETACH_S)
                self._attachment.wait_closed(_DETACH_S)
            self._device.close()
            return self._done
        finally:
            self.lock.release()

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
