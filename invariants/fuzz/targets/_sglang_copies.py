"""Copies between SGLang's pools that end late. Those of one direction end in the order in which
they were submitted, as on a stream; what they write has no content before that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from invariants.fuzz.target import need


class Event:
    """An event of a device: reached when the copy that it was recorded behind has ended."""

    behind: Any = None  # the copy that is being submitted

    def __init__(self, **_: Any) -> None:
        self.copy: Any = None

    def record(self, *_: Any) -> None:
        self.copy = Event.behind

    def query(self) -> bool:
        return self.copy is None or self.copy.done

    def synchronize(self) -> None:
        if self.copy is not None and not self.copy.done:
            self.copy.copies.finish(self.copy.number)


class Copy:
    """A copy. legs: of each pool the host slots, the device slots, and how often the pages of both
    had been taken. moved: the device has done it. done: its event says so."""

    def __init__(self, copies: Any, number: int, to_host: bool, legs: list[Any]) -> None:
        self.copies, self.number, self.to_host, self.legs = copies, number, to_host, legs
        self.moved = self.done = False

    def move(self) -> None:
        self.moved = True
        name = "backup" if self.to_host else "load"
        for host, device, at, to, *stamps in self.legs:
            for pool, slots, stamp in ((host, at, stamps[0]), (device, to, stamps[1])):
                pages = slots // pool.page_size
                kept = (pool.stamp[pages] == stamp) & pool.taken[pages]
                if not kept.all():
                    gone = np.unique(pages[~kept]).tolist()
                    text = f"{pool.name} pages {gone} were freed or reissued"
                    need(False, "PIN-IO", f"{text} before the {name} of them ended", pool.name)
            if self.to_host:
                same = device.content[to] == host.promise[at]
                host.content[at] = device.content[to]
                host.changes += 1
            else:
                same = device.content[to] == host.content[at]
            need(same.all(), "BYTES", f"{device.name}: a slot changed during its {name}", name)


class Copies:
    """Stands in for SGLang's L2TransferEngine."""

    def __init__(self) -> None:
        self.all: list[Copy] = []
        self.still: list[Copy] = []  # those that have not moved

    def submit_device_to_host(self, transfers: Any) -> Any:
        return self._submit(transfers, True)

    def submit_host_to_device(self, transfers: Any, *, on_layer_done: Any = None, **_: Any) -> Any:
        return self._submit(transfers, False, on_layer_done)

    def _submit(self, transfers: Any, to_host: bool, on_layer_done: Any = None) -> Any:
        legs = [_leg(one.host_pool, one.device_pool.pool, one) for one in transfers]
        copy = Copy(self, len(self.all), to_host, legs)
        self.all.append(copy)
        self.still.append(copy)
        start, finish = Event(), Event()
        finish.copy = Event.behind = copy
        if on_layer_done is not None:
            on_layer_done(0)
        Event.behind = None
        return SimpleNamespace(start_event=start, finish_event=finish, timing_enabled=False)

    def finish(self, number: int) -> None:
        """Ends a copy, and before it those of its direction that were submitted earlier."""
        self._move(number, self.all[number].to_host)
        for copy in self.all[: number + 1]:
            copy.done = copy.done or (copy.moved and copy.to_host == self.all[number].to_host)

    def before_pass(self) -> None:
        """A pass waits on the device for the loads before it (LayerDoneCounter.wait_until)."""
        if self.still:
            self._move(len(self.all) - 1, False)

    def after_passes(self) -> None:
        """A batch begins, so the passes but the last two have ended, and with them their loads."""
        for copy in [one for one in self.all if one.moved and not one.to_host][:-2]:
            copy.done = True

    def _move(self, number: int, to_host: bool) -> None:
        for copy in self.still[:]:
            if copy.to_host == to_host and copy.number <= number:
                self.still.remove(copy)
                copy.move()


def _leg(host: Any, device: Any, transfer: Any) -> Any:
    at, to = transfer.host_indices.numpy().copy(), transfer.device_indices.numpy().copy()
    need(at.size == to.size, "CONTRACT", f"{host.name}: {at.size} slots from or to {to.size}")
    for pool, slots in ((host, at), (device, to)):
        taken = pool.taken[slots // pool.page_size]
        if not taken.all():
            text = f"a copy of {pool.name} slots {np.unique(slots[~taken]).tolist()}"
            need(False, "PIN-IO", f"{text}, which are free", pool.name)
    return (
        host,
        device,
        at,
        to,
        host.stamp[at // host.page_size],
        device.stamp[to // device.page_size],
    )
