"""A server under way: its processes, its address, and how it ends.

Each file of this folder has SUMMARY, one line, and `launch(port, folder, size_bytes) -> Server`,
which starts a server that listens on the port, 0 for a free one; the size is that of its values.
`launch` raises CallerError if a program is missing or does not start.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hicache.core.errors import CallerError

SERVERS = "traces.servers"
HOST = "127.0.0.1"
_START_S = 20.0
_LISTENS = "0A"  # as /proc/net/tcp has it
_LOOPBACK = ("0100007F", "00000000000000000000000001000000")
_STOP_S = 10.0


@dataclass(slots=True)
class Server:
    """address: for `--storage`. processes: the one that clients ask first is the first."""

    address: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def stop(self) -> None:
        """End the processes, those that started last first."""
        for process in reversed(self.processes):
            end(process)

    def alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)

    def open_ports(self) -> list[int]:
        """The ports at which its processes listen beyond this machine, where the system tells."""
        return sorted(port for one in self.processes for port in _open_ports(one.pid))


def _open_ports(process: int) -> set[int]:
    folder = Path(f"/proc/{process}")
    own, found = set(), set()
    with suppress(OSError):
        for file in (folder / "fd").iterdir():
            own.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
        for name in ("tcp", "tcp6"):
            for line in (folder / "net" / name).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                address, port = local.split(":")
                if state == _LISTENS and rest[5] in own and address not in _LOOPBACK:
                    found.add(int(port, 16))
    return found


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL if that does not help. Also ends a process that is stopped."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.terminate()
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def refuse_taken(port: int) -> None:
    """Raises CallerError if somebody listens on the port."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((HOST, port))
        except OSError as error:
            raise CallerError(
                f"port: expected a free port of {HOST}, found {port}: {error.strerror}; leave "
                "--port out for a free one"
            ) from error


def program(name: str, install: str) -> str:
    """Where a program is. Raises CallerError if it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise CallerError(f"storage: expected the program {name}, found none; {install}")
    return found


def spawn(command: Sequence[str], log: Path, port: int) -> subprocess.Popen[bytes]:
    """Start a process and wait until it listens. It ends when this process does, also when this one
    is killed. Raises CallerError if it does not start."""
    setpriv = shutil.which("setpriv")
    tied = [setpriv, "--pdeathsig", "KILL", *command] if setpriv else list(command)
    with log.open("wb") as output:
        process = subprocess.Popen(
            tied,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us; we end the process
        )
    until = time.monotonic() + _START_S
    try:
        while process.poll() is None and time.monotonic() < until:
            with suppress(OSError), socket.create_connection((HOST, port), 0.2):
                return process
            time.sleep(0.02)
    except BaseException:
        end(process)
        raise
    end(process)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise CallerError(
        f"storage: expected {Path(command[0]).name} to listen on {HOST}:{port}, found that it did "
        f"not ({lines[-1][:200] if lines else f'exit code {process.returncode}'})"
    )
