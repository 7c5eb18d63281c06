"""Calls that may hang, made on threads that are given up on after a deadline.

Some clients block for many seconds when their server is gone, and cannot be told to stop. A job of
`Workers` runs on a thread of its own, with a resource that no other thread has (staging memory).
When it makes no progress (`step`) for `timeout_s`, `run` ends without it, and the thread goes
on. It may touch the caller's memory only in `Call.delivering`, which it cannot enter any more.

`PlainSocket` and `SecureSocket` have a time-out that means: so long without a byte that moved.
Python's own have one for all that `sendall` sends, and wait for an answer while megabytes of the
question still lie in the kernel's buffer.
"""

from __future__ import annotations

import fcntl
import socket
import ssl
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from .base import step, tell, watching

R = TypeVar("R")
T = TypeVar("T")
MOST = 64  # calls under way, those that hang with them
_PIECE = 256 << 10  # bytes of one `send`
_LOOKS = 8  # in a time-out, for whether anything has moved


class GivenUp(Exception):
    """Nobody waits for the call any more."""


class Call:
    """One job, as its thread and its caller see it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ended = self.given_up = False

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """The caller waits as long as this block runs. Raises GivenUp if it does not wait."""
        with self._changed:
            if self.given_up:
                raise GivenUp
            yield

    def step(self) -> None:
        """The deadline begins anew."""
        with self._changed:
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def give_up(self) -> None:
        with self._changed:
            self.given_up |= not self._ended
            self._changed.notify()

    def wait(self, timeout_s: float | None) -> bool:
        """Until the job has ended, or is given up. None: for ever. False: the latter."""
        with self._changed:
            while not (self._ended or self.given_up):
                moved = self._changed.wait(timeout_s)
                self.given_up |= not (moved or self._ended)
            return not self.given_up


class Workers(Generic[R]):
    """Makes calls, and none while `MOST` are under way. A resource is made when none is idle, and
    ended when all is closed."""

    def __init__(self, name: str, make: Callable[[], R], end: Callable[[R], None]) -> None:
        self._name, self._make, self._end = name, make, end
        self._changed = threading.Condition()
        self._calls: set[Call] = set()  # whose threads are at work
        self._idle: list[R] = []
        self._closed = False

    def run(
        self,
        job: Callable[[R, Call], T],
        timeout_s: float | None,
        otherwise: T,
        late: Callable[[], None] = lambda: None,
    ) -> T:
        """The result of the job, or what it raised; `otherwise` if it did not end in time, or the
        store was closed. Then `late` is called when it has ended, however it does, or never begins.
        """
        call, result = Call(), Future[T]()

        def work() -> None:
            with self._changed:
                resources = [self._idle.pop()] if self._idle else []
            try:
                resources = resources or [self._make()]
                with watching(call.step):
                    result.set_result(job(resources[0], call))
            except Exception as error:
                result.set_exception(error)
            with self._changed:
                closed = self._closed
                self._idle += [] if closed else resources
            for resource in resources if closed else ():
                self._end(resource)
            call.end()
            if call.given_up:
                late()
            with self._changed:
                self._calls.discard(call)
                self._changed.notify_all()

        with self._changed:
            begins = not self._closed and len(self._calls) < MOST
            self._calls |= {call} if begins else set()
        if begins:
            run = copy_context().run  # a job may tell its caller why it failed
            threading.Thread(target=run, args=(work,), name=self._name, daemon=True).start()
            if call.wait(timeout_s):
                return result.result()
        else:
            late()
        tell("no answer in time")
        return otherwise

    def close(self, timeout_s: float) -> bool:
        """Give up on what is under way. Whether all of it ends in time."""
        with self._changed:
            self._closed = True
            for call in self._calls:
                call.give_up()
            self._changed.notify_all()
            idle, self._idle = self._idle, []
        for resource in idle:
            self._end(resource)
        return self.join(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of what is under way. Whether it has ended."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._calls, timeout_s)


class _Patient(socket.socket):
    """Only `sendall` and `recv_into`, which the clients of stores use."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        left = memoryview(data).cast("B")
        while left:
            left = left[self._moving(super().send, left[:_PIECE], flags) :]

    def recv_into(self, *arguments: Any) -> int:
        return self._moving(super().recv_into, *arguments)

    def _moving(self, call: Callable[..., int], *arguments: Any) -> int:
        """The bytes of a call, which is made again as long as the other side takes what was
        sent. Raises TimeoutError when nothing has moved for the time-out."""
        patience, looks, unsent = self.gettimeout(), _LOOKS, self._unsent()
        self.settimeout(patience and patience / _LOOKS)
        try:
            while True:
                try:
                    moved = call(*arguments)
                except TimeoutError:
                    before, unsent, looks = unsent, self._unsent(), looks - 1
                    if unsent < before:
                        looks = _LOOKS
                        step()
                    elif not looks:
                        raise
                else:
                    step()
                    return moved
        finally:
            self.settimeout(patience)

    def _unsent(self) -> int:
        """Bytes that the other side has not taken yet."""
        unsent = fcntl.ioctl(self.fileno(), termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(unsent, sys.byteorder)


class PlainSocket(_Patient):
    @classmethod
    def of(cls, other: socket.socket) -> PlainSocket:
        """The same connection; `other` is not used any more."""
        timeout = other.gettimeout()
        patient = cls(fileno=other.detach())
        patient.settimeout(timeout)
        return patient


class SecureSocket(_Patient, ssl.SSLSocket):
    """For `sslsocket_class` of a context."""
