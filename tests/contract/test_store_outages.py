"""Stores that die, hang, fill up, refuse writes or are slow, in one table: what a caller sees, and
what must never happen."""

import errno
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from hicache.storage.address import backend, open_store, parse
from hicache.storage.base import Status, Storage, StorageOptions, Value, watching
from tests import servers
from tests.needs import PATIENCE_S, eventually
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
    patiently,
    started,
    usable,
    value_of,
)

Fault = Callable[[Rig, Path], AbstractContextManager[None]]
REFUSED = {Status.FAILED, Status.FULL}
LOST = {Status.FAILED, Status.MISSING}


@contextmanager
def dead(rig: Rig, folder: Path) -> Iterator[None]:
    """Killed while it is written to. It begins again on its port."""
    assert rig.server is not None
    for process in rig.server.processes:
        process.kill()
    for process in rig.server.processes:
        end(process)
    yield
    rig.server.processes[:] = SERVERS[rig.scheme](port_of(rig), folder, ROOM).processes


@contextmanager
def holder_dead(rig: Rig, folder: Path) -> Iterator[None]:
    """Mooncake's master goes on to promise the values for some seconds."""
    assert rig.server is not None
    end(rig.server.processes[1])
    yield
    rig.server.processes.append(mooncake_client(port_of(rig), folder, ROOM))


def stopped(number: int) -> Fault:
    @contextmanager
    def stop(rig: Rig, folder: Path) -> Iterator[None]:
        assert rig.server is not None
        rig.server.processes[number].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            rig.server.processes[number].send_signal(signal.SIGCONT)

    return stop


@contextmanager
def disk_hangs(rig: Rig, folder: Path) -> Iterator[None]:
    released = threading.Event()

    def late(real: Any) -> Any:
        def call(*items: Any) -> Any:
            released.wait(PATIENCE_S)
            return real(*items)

        return call

    with (
        mock.patch.object(os, "preadv", late(os.preadv)),
        mock.patch.object(os, "pwritev", late(os.pwritev)),
    ):
        yield
        released.set()


def disk_refuses(code: int) -> Fault:
    @contextmanager
    def refuse(rig: Rig, folder: Path) -> Iterator[None]:
        with mock.patch.object(os, "pwritev", side_effect=OSError(code, os.strerror(code))):
            yield

    return refuse


def configured(before: str, after: str) -> Fault:
    @contextmanager
    def configure(rig: Rig, folder: Path) -> Iterator[None]:
        tell(port_of(rig), "config set maxmemory-policy noeviction")
        tell(port_of(rig), f"config set {before}")
        yield
        tell(port_of(rig), f"config set {after}")

    return configure


# scheme, fault, what reads and writes say meanwhile, what reads say afterwards
DEAD, HUNG = ({Status.FAILED}, {Status.FAILED}), ({Status.FAILED}, {Status.FAILED})
KEPT, GONE, TAKES_NO_WRITES = {Status.DONE}, {Status.MISSING}, ({Status.DONE}, REFUSED)
TABLE: dict[str, tuple[str, Fault, tuple[set[Status], set[Status]], set[Status]]] = {
    "redis dead": ("redis", dead, DEAD, GONE),
    "s3 dead": ("s3", dead, DEAD, GONE),
    "mooncake dead": ("mooncake", dead, (LOST, REFUSED), GONE),
    "mooncake holder dead": ("mooncake", holder_dead, (LOST, REFUSED), GONE),
    "redis hung": ("redis", stopped(0), HUNG, KEPT),
    "s3 hung": ("s3", stopped(0), HUNG, KEPT),
    "mooncake hung": ("mooncake", stopped(0), HUNG, KEPT),
    "mooncake holder hung": ("mooncake", stopped(1), HUNG, KEPT),
    "hf3fs hung": ("hf3fs", disk_hangs, HUNG, KEPT),
    "redis full": (
        *("redis", configured("maxmemory 1", f"maxmemory {ROOM}")),
        *(TAKES_NO_WRITES, KEPT),
    ),
    "file full": ("file", disk_refuses(errno.ENOSPC), TAKES_NO_WRITES, KEPT),
    "hf3fs full": ("hf3fs", disk_refuses(errno.ENOSPC), TAKES_NO_WRITES, KEPT),
    "redis refuses": (
        *("redis", configured("min-replicas-to-write 1", "min-replicas-to-write 0")),
        *(TAKES_NO_WRITES, KEPT),
    ),
    "file refuses": ("file", disk_refuses(errno.EROFS), TAKES_NO_WRITES, KEPT),
    "hf3fs refuses": ("hf3fs", disk_refuses(errno.EIO), TAKES_NO_WRITES, KEPT),
}


def check(store: Storage, keys: Sequence[str], values: Sequence[Value]) -> set[Status]:
    """Read all; what is there is right."""
    views = [blank(value) for value in values]
    statuses = store.read(keys, views)
    for status, item, value in zip(statuses, views, values, strict=True):
        assert status is not Status.DONE or joined([item]) == joined([value])
    return set(statuses)


@pytest.mark.parametrize("name", TABLE)
def test_an_outage(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls end with what the table says, also those that were under way; late answers touch
    nobody's memory; each change is told once; and what was stored is there, or is gone with its
    server."""
    scheme, fault, (reads, writes), after = TABLE[name]
    if fault is holder_dead:
        monkeypatch.setattr(servers, "_CLIENT_S", 8)
    keys, others, new = (keys_of(text, 16) for text in ("kept", "written", "new"))
    values = [value_of(drawn(number, 100_000), 64) for number in range(16)]
    notices, ended, begun, batches = list[str](), False, threading.Event(), list[list[Status]]()
    with started(scheme, tmp_path) as rig, closing(rig.open(HASTY_S)) as raw:
        options = StorageOptions(HASTY_S)
        address, now = parse(rig.address), time.monotonic
        store = patiently(lambda: open_store(address, options, now, notices.append))
        eventually(lambda: store.write(keys, values) == [Status.DONE] * 16)
        eventually(lambda: raw.write(others, values) == [Status.DONE] * 16)
        eventually(lambda: check(store, keys, values) == {Status.DONE})

        def write() -> None:
            while not ended:
                batches.append(raw.write(others, values))
                begun.set()

        writer = threading.Thread(target=write)
        writer.start()
        begun.wait()
        notices.clear()
        with fault(rig, tmp_path):
            ended = True
            writer.join()
            if Status.DONE not in reads:
                eventually(lambda: check(raw, others, values) <= reads)
            for _ in range(6):
                assert set(store.write(new, values)) <= writes
                assert check(store, keys, values) <= reads | {Status.FAILED}
                if notices:
                    break
            assert set(raw.lookup(keys)) <= {None, True, after is KEPT}
            painted = [blank(value) for value in values]
            if reads == {Status.FAILED}:
                assert set(raw.read(others, painted)) == {Status.FAILED}
            for views in painted:
                for buffer in views:
                    buffer[:] = b"\xaa" * buffer.nbytes
        assert {status for batch in batches for status in batch} <= {Status.DONE, *writes}
        eventually(lambda: check(store, keys, values) <= after)
        assert set(b"".join(joined(painted))) == {0xAA}
        eventually(lambda: store.write(keys, values) == [Status.DONE] * 16)
        eventually(lambda: check(store, keys, values) == {Status.DONE})
        store.close()
    words = "takes no writes (" if reads == {Status.DONE} else "does not answer ("
    assert Status.MISSING in reads or any(words in text for text in notices)
    assert "again, after" in notices[-1]


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
            lasts_s, texts = 4 * timeout_s, list[str]()
            with slowed(rig, size / lasts_s) as (slow, link):
                options = StorageOptions(timeout_s)
                store = open_store(
                    parse(slow.address), options, time.monotonic, texts.append, timeout_s
                )
                with closing(store), polled(store):
                    began_s, views = time.monotonic(), blank(value)
                    done = [store.write([key], [value]), store.read([key], [views])]
                    took_s, well = time.monotonic() - began_s, not texts
                    if link is not None:
                        link.left = size // 2
                        assert store.write([key], [value]) == [Status.FAILED]
            if well and done == [[Status.DONE]] * 2:
                assert joined([views]) == joined([value])
                assert took_s > 2 * lasts_s
                break
        else:
            pytest.fail(f"{done}, {texts}")


def test_a_holder_that_is_silent_is_no_progress_of_mooncake() -> None:
    """Whatever others answer beside it: each batch more may cost another time-out."""
    usable("mooncake")
    client, steps, value = mock.Mock(), list[int](), value_of(bytes(100))
    client.get_size.return_value = 100
    store = backend("mooncake").Mooncake(client, mock.Mock(), HASTY_S)
    with closing(store), watching(lambda: steps.append(1)):
        for code, status in ((-800, Status.FAILED), (100, Status.DONE)):
            client.batch_get_into.return_value = [100, code]
            assert not steps
            assert store.read(["a", "b"], [blank(value)] * 2) == [Status.DONE, status]
    assert steps


def port_of(rig: Rig) -> int:
    return int(re.findall(r"127\.0\.0\.1:(\d+)", rig.address)[0])


def tell(port: int, command: str) -> None:
    """A command for a Redis server."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(command.encode() + b"\r\n")
        assert connection.recv(100) == b"+OK\r\n"


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
def test_an_outage_costs_a_batch_one_round_of_requests(
    scheme: str, at_once: int, tmp_path: Path
) -> None:
    """What was not sent when the server went is not sent any more: each request may cost a
    time-out. A client may try a connection of before first, so twice as many are allowed."""
    keys = keys_of("round", 40 * at_once)
    values = [value_of(drawn(number, 50), 20) for number in range(len(keys))]
    calls = {"lookup": [keys], "read": [keys, values], "write": [keys, values], "delete": [keys]}
    with started(scheme, tmp_path) as rig, ExitStack() as ending:
        stores = [ending.enter_context(closing(rig.open(HASTY_S))) for _ in calls]
        assert rig.server is not None
        rig.server.stop()
        for store, (kind, items) in zip(stores, calls.items(), strict=True):
            with refusing(port_of(rig)) as requested:
                result = getattr(store, kind)(*items)
            assert set(result) == {None if kind == "lookup" else Status.FAILED}
            assert 0 < requested[0] <= 2 * at_once, f"{kind}: {requested[0]} requests"
