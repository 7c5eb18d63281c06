"""Links and disks on which bytes flow all the time, slowly."""

import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest import mock

from tests.contract.rigs_stores import Rig

_PIECE = 8192
_WINDOW = 64 << 10  # bytes that lie between both ends


class Link:
    """A relay to a port of this machine. rate: bytes a second in each direction of a connection.
    left: bytes until it stands still."""

    def __init__(self, port: int, rate: float) -> None:
        self._port, self.rate, self.left = port, rate, 1 << 60
        self._server = socket.socket()
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WINDOW)
        self._server.bind(("127.0.0.1", 0))
        self._server.listen()
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def close(self) -> None:
        self.left = 1 << 60
        accepting, *_ = self._threads
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        accepting.join()  # no connection comes any more
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for item in (self._server, *self._ends):
            item.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.socket()
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WINDOW)
            far.connect(("127.0.0.1", self._port))
            self._ends += [near, far]
            for pair in ((near, far), (far, near)):
                self._threads.append(threading.Thread(target=self._relay, args=pair))
                self._threads[-1].start()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while some := source.recv(_PIECE):
                self.left -= len(some)
                while self.left < 0:
                    time.sleep(0.01)
                target.sendall(some)
                time.sleep(len(some) / self.rate)
        for item in (source, target):
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)


class Disk:
    """The system calls of this process that move values take their time."""

    rate = 0.0

    def install(self, stack: ExitStack) -> None:
        for name in ("preadv", "pwritev", "pwrite"):
            stack.enter_context(mock.patch.object(os, name, self._slowed(getattr(os, name))))

    def _slowed(self, real: Any) -> Any:
        def call(file: int, value: Any, at: int) -> int:
            buffers: Sequence[Any] = [value] if isinstance(value, memoryview | bytes) else value
            time.sleep(sum(memoryview(buffer).nbytes for buffer in buffers) / self.rate)
            return int(real(file, value, at))

        return call


@contextmanager
def slowed(rig: Rig, rate: float) -> Iterator[tuple[Rig, Link | None]]:
    """The store of the rig over a slow link, or, where there is no server, on a slow disk."""
    with ExitStack() as stack:
        if rig.server is None:
            disk = Disk()
            disk.rate = rate
            disk.install(stack)
            yield rig, None
            return
        port = re.findall(r"127\.0\.0\.1:(\d+)", rig.address)[0]
        link = Link(int(port), rate)
        stack.callback(link.close)
        yield replace(rig, address=rig.address.replace(port, str(link.port))), link
