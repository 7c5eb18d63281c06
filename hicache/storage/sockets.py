"""Sockets whose time-out means: so long without a byte that moved.

Python's own have one time-out for all that `sendall` sends, and wait for an answer while megabytes
of the question still lie in the kernel's buffer. Here the time-out begins anew with every byte that
the other side took or sent, and whoever waits for the call learns of it (`step`).
"""

from __future__ import annotations

import fcntl
import socket
import ssl
import sys
import termios
from collections.abc import Callable
from typing import Any

from .base import step

_PIECE = 256 << 10  # bytes of one `send`


class _Patient(socket.socket):
    """Only `sendall` and `recv_into`, which the clients of stores use."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        left = memoryview(data).cast("B")
        while left:
            left = left[self._moving(super().send, left[:_PIECE], flags) :]

    def recv_into(self, *given: Any) -> int:
        return self._moving(super().recv_into, *given)

    def _moving(self, call: Callable[..., int], *given: Any) -> int:
        """The bytes of a call, which is made again as long as the other side takes what was
        sent. Raises TimeoutError."""
        while True:
            unsent = self._unsent()
            try:
                moved = call(*given)
            except TimeoutError:
                if self._unsent() >= unsent:
                    raise
                step()
            else:
                step()
                return moved

    def _unsent(self) -> int:
        """Bytes that the other side has not taken yet."""
        found = fcntl.ioctl(self.fileno(), termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(found, sys.byteorder)


class Plain(_Patient):
    @classmethod
    def of(cls, other: socket.socket) -> Plain:
        """The same connection; `other` is not used any more."""
        timeout = other.gettimeout()
        made = cls(fileno=other.detach())
        made.settimeout(timeout)
        return made


class Secure(_Patient, ssl.SSLSocket):
    """For `sslsocket_class` of a context."""
