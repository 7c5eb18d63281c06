"""Issuing the work of a CUDA device: the thread that makes the driver's calls, and events.

The thread makes the calls of large copies in the order in which they were put. A call of the driver
holds no lock of Python, so the caller goes on meanwhile.

After each call of the driver the thread needs Python's lock again, which a caller who computes in
Python gives away every 5 ms. While there are calls to make, that is every 0.5 ms
(`sys.setswitchinterval`, which is the process's, and is set back).

The first error of a call is the last call: no later one is made, and every question of the caller
raises it. A driver that does not come back is reported after a minute, and not waited for again.

Marks are events that can only be polled. Those of one stream are reached in order, so an event that
was reached shows that all earlier ones were. The work before an event may need memory until it has
ended (such as page numbers that are being uploaded), or have a function to call afterwards (a
reader). The event keeps both until it is seen reached.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from hicache.core.errors import CallerError, CoreBug, HicacheError

from .base import DeviceEvent

_STUCK_S = 60.0
_SWITCH_S = 0.0005


class Issuer:
    """attach: called first, on the thread, which begins with the first call."""

    def __init__(self, attach: Callable[[], None]) -> None:
        self._attach = attach
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._moved = threading.Condition()
        self._put = 0
        self._made = 0
        self._wanted = 0  # the call that the caller waits for
        self._error: HicacheError | None = None
        self._stuck = False

    def put(self, call: Callable[[], object]) -> int:
        """Have a call made after those before it. Returns its number, from 1 on."""
        self.check()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cuda-issue", daemon=True)
            self._thread.start()
        self._put += 1
        self._calls.put(call)
        return self._put

    def made(self, number: int) -> bool:
        """Whether this call was made."""
        return self._made >= number

    def settle(self, number: int) -> None:
        """Block until this call was made. Raises the error of a call, or CoreBug if the driver does
        not come back."""
        if self._made >= number:
            return
        self.check()
        with self._moved:
            self._wanted = number
            while self._made < number:
                before = self._made
                if not self._moved.wait(_STUCK_S) and self._made == before:
                    self._stuck = True
                    self._fail(_stuck())
                self.check()

    def check(self) -> None:
        """Raises the error of a call."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread after all calls. Raises CoreBug if the driver does not come back: then it
        may still use the memory."""
        if self._thread is None:
            return
        self._calls.put(None)
        while self._thread.is_alive():
            before = self._made
            self._thread.join(0 if self._stuck else _STUCK_S)
            if self._thread.is_alive() and self._made == before:
                raise _stuck()
        self._thread = None

    @property
    def failed(self) -> bool:
        """Whether calls were left out."""
        return self._error is not None

    def _run(self) -> None:
        call: Callable[[], object] | None = self._attach
        pace = _Pace()
        while call is not None:
            if self._error is None:
                self._make(call)
            call = None  # else it would be kept until the next one comes
            if self._calls.empty():
                pace.back()
            call = self._calls.get()
            pace.quick()
        pace.back()

    def _make(self, call: Callable[[], object]) -> None:
        try:
            call()
        except HicacheError as error:
            self._fail(error)
        except Exception as error:
            line = (str(error).splitlines() or [""])[0]
            bug = CoreBug(f"device: {type(error).__name__} while copies were issued: {line}")
            bug.__cause__ = error
            self._fail(bug)
        else:
            if call is not self._attach:
                with self._moved:
                    self._made += 1
                    if self._made == self._wanted:
                        self._moved.notify_all()

    def _fail(self, error: HicacheError) -> None:
        with self._moved:
            self._error = self._error or error
            self._moved.notify_all()


class Issued:
    """An event of the accelerator that call `number` of an issuer records; 0: it was recorded."""

    __slots__ = ("_issuer", "event", "number")

    def __init__(self, issuer: Issuer, event: Any, number: int) -> None:
        self._issuer = issuer
        self.event = event
        self.number = number

    def query(self) -> bool:
        """Whether it was reached. CUDA says so of an event that was never recorded."""
        return self._issuer.made(self.number) and bool(self.event.query())

    def synchronize(self) -> None:
        self._issuer.settle(self.number)
        self.event.synchronize()


class _Pace:
    """How often Python's lock is given away. What somebody else sets meanwhile stays."""

    def __init__(self) -> None:
        self._usual_s = self._set_s = 0.0

    def quick(self) -> None:
        if not self._usual_s and sys.getswitchinterval() > _SWITCH_S:
            self._usual_s = sys.getswitchinterval()
            sys.setswitchinterval(_SWITCH_S)
            self._set_s = sys.getswitchinterval()

    def back(self) -> None:
        if self._usual_s and sys.getswitchinterval() == self._set_s:
            sys.setswitchinterval(self._usual_s)
        self._usual_s = 0.0


def _stuck() -> CoreBug:
    return CoreBug(
        f"device: expected the driver to take a copy within {_STUCK_S:g} s, found it in the same "
        "call; end the process, its memory stays registered"
    )


class _Waiting(NamedTuple):
    device_event: DeviceEvent
    event: Issued
    kept: list[object]
    after: list[Callable[[], None]]


class Line:
    """The record of one stream.

    kept: objects that work since the last event needs. after: functions to call when the next event
    is seen reached.
    """

    __slots__ = ("after", "kept", "waiting")

    def __init__(self) -> None:
        self.kept: list[object] = []
        self.after: list[Callable[[], None]] = []
        self.waiting: deque[_Waiting] = deque()


class DeviceEvents:
    """All events of one device. `seen` is called with each event and its event when it is
    reached."""

    def __init__(self, seen: Callable[[DeviceEvent, Issued], None] | None = None) -> None:
        self._count = 0
        self._unreached: dict[DeviceEvent, tuple[Line, Issued]] = {}
        self._seen = seen

    def __len__(self) -> int:
        """Number of events not yet seen reached."""
        return len(self._unreached)

    def record(self, line: Line, event: Issued) -> DeviceEvent:
        """A new event for an event. Retires events that were reached."""
        device_event = DeviceEvent(self._count)
        self._count += 1
        line.waiting.append(_Waiting(device_event, event, line.kept, line.after))
        line.kept, line.after = [], []
        self._unreached[device_event] = (line, event)
        while (
            line.waiting
            and line.waiting[0].device_event != device_event
            and line.waiting[0].event.query()
        ):
            self._retire(line)
        return device_event

    def event(self, device_event: DeviceEvent) -> Issued | None:
        """The event to wait for; None if the event was seen reached."""
        self._check(device_event)
        result = self._unreached.get(device_event)
        return None if result is None else result[1]

    def reached(self, device_event: DeviceEvent) -> bool:
        self._check(device_event)
        result = self._unreached.get(device_event)
        if result is None:
            return True
        line, event = result
        if not event.query():
            return False
        while device_event in self._unreached:
            self._retire(line)
        return True

    def settle(self, line: Line) -> None:
        """Retire all events of a stream whose work is known to have ended."""
        while line.waiting:
            self._retire(line)

    def _retire(self, line: Line) -> None:
        waiting = line.waiting.popleft()
        del self._unreached[waiting.device_event]
        if self._seen is not None:
            self._seen(waiting.device_event, waiting.event)
        for look in waiting.after:
            look()

    def _check(self, device_event: DeviceEvent) -> None:
        if not 0 <= device_event < self._count:
            raise CallerError(
                f"event: expected one that this device recorded, found {device_event}"
            )
