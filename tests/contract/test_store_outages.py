"""Stores whose servers die, hang and come back: what a caller sees, and what must never happen."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from hicache.storage.address import backend, open_store, parse
from hicache.storage.base import Status, Storage, StorageOptions, Value
from hicache.storage.breaker import BreakerOptions
from tests import servers
from tests.patience import PATIENCE_S
from tests.servers import SERVERS, end, mooncake_client
from tests.storage.outages.slow import slowed

from .rigs_stores import (
    HASTY_S,
    LOCAL,
    MIB,
    ROOM,
    Rig,
    blank,
    drawn,
    joined,
    keys_of,
    started,
    value_of,
)

KINDS = list(SERVERS)


@contextmanager
def stopped(process: Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def check(store: Storage, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
    """Read all; what is there is right."""
    found = [blank(value) for value in values]
    statuses = store.read(keys, found)
    for status, one, value in zip(statuses, found, values, strict=True):
        assert status is not Status.DONE or joined([one]) == joined([value])
    return statuses


@pytest.mark.parametrize("scheme", KINDS)
def test_a_server_that_hangs(scheme: str, tmp_path: Path) -> None:
    """Calls end while the server stands still, and its late answers touch nobody's memory."""
    keys = keys_of("hanging", 6)
    values = [value_of(drawn(number, 300_000), 64) for number in range(6)]
    with started(scheme, tmp_path) as rig, closing(rig.open()) as patient:
        assert rig.server is not None
        assert patient.write(keys, values) == [Status.DONE] * 6
        for process in rig.server.processes:
            found = [blank(value) for value in values]
            with closing(rig.open(HASTY_S)) as store:
                with stopped(process):
                    assert store.read(keys, found) == [Status.FAILED] * 6
                    assert store.write(keys, values) == [Status.FAILED] * 6
                    for one in found:
                        for buffer in one:
                            buffer[:] = b"\xaa" * buffer.nbytes
                eventually(lambda: Status.FAILED not in check(patient, keys, values))
            assert set(b"".join(joined(found))) == {0xAA}
            assert patient.write(keys, values) == [Status.DONE] * 6


@contextmanager
def polled(store: Storage) -> Iterator[None]:
    """Somebody asks now and then whether its calls hang, as those do who use it."""
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(0.05):
            store.poll()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("scheme", ["file", "hf3fs", "redis", "s3"])
def test_a_slow_link_or_disk_on_which_bytes_flow(scheme: str, tmp_path: Path) -> None:
    """A value that takes several time-outs in all is written and read, and one that stops half way
    fails. A machine that stands still for longer than a time-out gets a longer one. Mooncake's
    client does not say what it has moved."""
    [key] = keys_of("slow", 1)
    size = (16 if scheme in LOCAL else 2) * MIB
    value = value_of(drawn(1, size), 64, size // 2)
    with started(scheme, tmp_path) as rig:
        for timeout_s in (0.5, 2.0, 8.0, 32.0, 128.0):
            lasts_s, said = 4 * timeout_s, list[str]()
            with slowed(rig, size / lasts_s) as (slow, link):
                options = StorageOptions(size_bytes=rig.size_bytes, timeout_s=timeout_s)
                breaker = BreakerOptions(slow_s=timeout_s)
                store = open_store(
                    parse(slow.address), options, time.monotonic, said.append, breaker
                )
                with closing(store), polled(store):
                    began_s, found = time.monotonic(), blank(value)
                    done = [store.write([key], [value]), store.read([key], [found])]
                    took_s, well = time.monotonic() - began_s, not said
                    if link is not None:
                        link.left = size // 2
                        assert store.write([key], [value]) == [Status.FAILED]
            if well and done == [[Status.DONE]] * 2:
                assert joined([found]) == joined([value])
                assert took_s > 2 * lasts_s
                break
        else:
            pytest.fail(f"{done}, {said}")


@pytest.mark.parametrize("scheme", KINDS)
def test_a_server_that_is_killed_in_a_batch_and_comes_back(scheme: str, tmp_path: Path) -> None:
    keys = keys_of("killed", 64)
    values = [value_of(drawn(number, 100_000), 64) for number in range(64)]
    with started(scheme, tmp_path) as rig, closing(rig.open(HASTY_S)) as store:
        assert rig.server is not None
        batches = write_until_it_fails(store, keys, values, rig.server.processes)
        assert set(batches[-1]) <= {Status.DONE, Status.FAILED, Status.FULL}
        assert set(check(store, keys, values)) == {Status.FAILED}
        assert store.lookup(keys) == [None] * 64
        rig.server.processes[:] = again(rig, scheme, tmp_path).processes
        eventually(lambda: Status.FAILED not in check(store, keys, values))
        eventually(lambda: store.write(keys, values) == [Status.DONE] * 64)
        # a hasty client may give up a call while the server begins; what it wrote stays
        eventually(lambda: check(store, keys, values) == [Status.DONE] * 64)


def test_the_client_that_holds_the_values_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mooncake's master goes on to promise its values for some seconds."""
    monkeypatch.setattr(servers, "_CLIENT_S", 8)
    keys = keys_of("owner", 16)
    values = [value_of(drawn(number, 100_000), 64) for number in range(16)]
    with started("mooncake", tmp_path) as rig, closing(rig.open(HASTY_S)) as store:
        assert rig.server is not None
        write_until_it_fails(store, keys, values, rig.server.processes[1:])
        assert set(check(store, keys, values)) <= {Status.FAILED, Status.MISSING}
        rig.server.processes.append(mooncake_client(port_of(rig), tmp_path, ROOM))
        eventually(lambda: store.write(keys, values) == [Status.DONE] * 16)
        eventually(lambda: check(store, keys, values) == [Status.DONE] * 16)


def again(rig: Rig, scheme: str, folder: Path) -> Any:
    """The server of the rig once more, on its port."""
    return SERVERS[scheme](port_of(rig), folder, ROOM)


def port_of(rig: Rig) -> int:
    return int(re.findall(r"127\.0\.0\.1:(\d+)", rig.address)[0])


def write_until_it_fails(
    store: Storage, keys: Sequence[str], values: Sequence[Value], victims: Sequence[Popen[bytes]]
) -> list[list[Status]]:
    """Batch after batch, while the processes are killed. Returns all statuses, from a moment on at
    which all was well."""
    eventually(lambda: store.write(keys, values) == [Status.DONE] * len(keys))
    batches: list[list[Status]] = []
    begun = threading.Event()

    def write() -> None:
        while not batches or Status.DONE in batches[-1]:
            batches.append(store.write(keys, values))
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    for process in victims:
        process.kill()
    writer.join()
    for process in victims:
        end(process)
    return batches


def tell(port: int, command: str) -> None:
    """A command for a Redis server."""
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(command.encode() + b"\r\n")
        assert one.recv(100) == b"+OK\r\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("min-replicas-to-write 1", "min-replicas-to-write 0"),
        ("maxmemory 1", f"maxmemory {ROOM}"),
    ],
)
def test_a_server_that_takes_no_writes_is_read(before: str, after: str, tmp_path: Path) -> None:
    """Each refused write says so, and its reason is told once."""
    [key], value, notices = keys_of("refusing", 1), value_of(drawn(1, 5000), 64), list[str]()
    with started("redis", tmp_path) as rig:
        tell(port_of(rig), "config set maxmemory-policy noeviction")
        store = open_store(parse(rig.address), StorageOptions(), time.monotonic, notices.append)
        with closing(store):
            assert store.write([key], [value]) == [Status.DONE]
            tell(port_of(rig), f"config set {before}")
            for _ in range(8):
                assert store.write([key], [value])[0] in (Status.FAILED, Status.FULL)
                assert check(store, [key], [value]) == [Status.DONE]
            eventually(lambda: len(notices) == 1)
            assert "takes no writes (" in notices[0]
            tell(port_of(rig), f"config set {after}")
            eventually(lambda: store.write([key], [value]) == [Status.DONE])
            assert "takes writes again" in notices[1]


@contextmanager
def refusing(port: int) -> Iterator[list[int]]:
    """Something at this port ends each connection at once. Yields how many it has ended."""
    ended = [0]
    server = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connection.close()
            ended[0] += 1

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield ended
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@pytest.mark.parametrize(("scheme", "at_once"), [("redis", 1), ("s3", 16)])
@pytest.mark.parametrize("kind", ["lookup", "read", "write", "delete"])
def test_an_outage_costs_a_batch_one_round_of_requests(
    scheme: str, at_once: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not sent when the server went is not sent any more: each request may cost a
    time-out. A client may try a connection of before first, so twice as many are allowed."""
    keys = keys_of("round", 40 * at_once)
    values = [value_of(drawn(number, 50), 20) for number in range(len(keys))]
    with started(scheme, tmp_path) as rig, closing(rig.open(HASTY_S)) as store:
        if scheme == "redis":
            monkeypatch.setattr(backend(scheme), "_BATCH", 100)
            monkeypatch.setattr(backend(scheme), "_KEYS", 2)
        assert rig.server is not None
        for process in rig.server.processes:
            end(process)
        with refusing(port_of(rig)) as asked:
            found = getattr(store, kind)(keys, *([values] if kind in ("read", "write") else []))
    assert set(found) == {None if kind == "lookup" else Status.FAILED}
    assert 0 < asked[0] <= 2 * at_once, f"{asked[0]} requests"
