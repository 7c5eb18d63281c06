"""Calls that may hang, made on threads that are given up on after a deadline.

Some clients block for many seconds when their server is gone, and cannot be told to stop. A job of
`Workers` runs on a thread with a resource of its own (staging memory). When it makes no progress
for `timeout_s`, `run` ends with `GivenUp`. The thread goes on with its resource. It may touch the
caller's memory only in `Call.delivering`, which it cannot enter any more.

`PlainSocket` and `SecureSocket` have a time-out that means: so long without a byte that moved.
Python's own have one for all that `sendall` sends, and wait for an answer while megabytes of the
question still lie in the kernel's buffer.
"""

from __future__ import annotations

import fcntl
import queue
import socket
import ssl
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from .base import step

R = TypeVar("R")
T = TypeVar("T")
_PIECE = 256 << 10  # bytes of one `send`


class GivenUp(Exception):
    """The call did not end in time, or the store was closed."""

    def __str__(self) -> str:
        return "no answer in time"


class Call:
    """One job, as its thread and its caller see it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._stepped = self._ended = self._given_up = False

    def step(self) -> None:
        """The job made progress: its deadline begins anew, and that of whoever waits for it."""
        step()
        self._set("_stepped")

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """The caller waits as long as this block runs. Raises GivenUp if it does not wait."""
        with self._changed:
            if self._given_up:
                raise GivenUp
            yield

    def end(self) -> None:
        self._set("_ended")

    def give_up(self) -> None:
        self._set("_given_up")

    def wait(self, timeout_s: float | None) -> bool:
        """Whether the job ended before it made no step for `timeout_s`. None: for ever."""
        with self._changed:
            while not (self._ended or self._given_up):
                self._stepped = False
                if not self._changed.wait_for(
                    lambda: self._ended or self._given_up or self._stepped, timeout_s
                ):
                    self._given_up = True
            return self._ended

    def _set(self, name: str) -> None:
        with self._changed:
            setattr(self, name, True)
            self._changed.notify()


class Workers(Generic[R]):
    """Threads that make calls, at most `most`, started when they are needed. Each makes its
    resource before its first job, and ends it when all is closed."""

    def __init__(
        self, name: str, make: Callable[[], R], end: Callable[[R], None], most: int = 8
    ) -> None:
        self._name, self._make, self._end, self._most = name, make, end, most
        self._lock = threading.Condition()
        self._jobs = queue.SimpleQueue[Callable[[list[R]], None] | None]()
        self._threads: list[threading.Thread] = []
        self._calls: set[Call] = set()  # under way, each on a thread
        self._lost: set[Call] = set()  # those of them that were given up
        self._closed = False

    def run(self, job: Callable[[R, Call], T], timeout_s: float | None) -> T:
        """The result of the job, or what it raised. Raises GivenUp."""
        call, context = Call(), copy_context()  # a job may tell its caller why it failed
        results: list[T] = []
        errors: list[Exception] = []

        def work(made: list[R]) -> None:
            try:
                if not made:
                    made.append(self._make())
                results.append(context.run(job, made[0], call))
            except Exception as error:
                errors.append(error)
            with self._lock:
                self._calls.discard(call)
                self._lost.discard(call)
                self._lock.notify()
            call.end()

        self._begin(call, work, timeout_s)
        if not call.wait(timeout_s):
            with self._lock:
                self._lost |= self._calls & {call}
            raise GivenUp
        if errors:
            raise errors[0]
        return results[0]

    def close(self, timeout_s: float) -> bool:
        """Give up on what is under way and end the threads. Whether they end in time."""
        with self._lock:
            self._closed = True
            for call in self._calls:
                call.give_up()
            self._lock.notify_all()
        for _ in self._threads:
            self._jobs.put(None)
        return self.join(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the threads. Whether all have ended."""
        for thread in self._threads:
            thread.join(timeout_s)
            if thread.is_alive():
                return False
        return True

    def _begin(self, call: Call, work: Callable[[list[R]], None], timeout_s: float | None) -> None:
        """Give it to an idle thread, or a new one. Raises GivenUp when all hang or stay busy."""
        with self._lock:
            self._lock.wait_for(
                lambda: (
                    self._closed or len(self._calls) < self._most or len(self._lost) == self._most
                ),
                timeout_s,
            )
            if self._closed or len(self._calls) >= self._most:
                raise GivenUp
            self._calls.add(call)
            if len(self._calls) > len(self._threads):
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
                self._threads[-1].start()
            self._jobs.put(work)

    def _serve(self) -> None:
        made: list[R] = []
        while (work := self._jobs.get()) is not None:
            work(made)
        for resource in made:
            self._end(resource)


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
        sent. Raises TimeoutError."""
        while True:
            unsent = self._unsent()
            try:
                moved = call(*arguments)
            except TimeoutError:
                if self._unsent() >= unsent:
                    raise
                step()
            else:
                step()
                return moved

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
