"""Mooncake Store: values in the memory of other machines, through Mooncake's own client.

    mooncake://HOST:PORT?metrics=PORT&segment=BYTES&protocol=tcp&device=NAME&local=HOST
        &metadata=P2PHANDSHAKE

HOST:PORT is the master. `metrics` is its second port, which lists keys. `segment` is the memory
that this process gives to the store: none by default, others hold the values.

The client blocks for 4 to 90 s when a server is gone, so every call runs on a thread that is given
up on (`calls`), with memory of its own, which the client may still use much later.

Mooncake keeps the old value of a key that is written again, and answers 0. So a key that exists is
removed first.
"""

from __future__ import annotations

import atexit
import os
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

import numpy as np

# The client reads this when it is imported.
os.environ.setdefault("MC_LOG_LEVEL", "ERROR")

from mooncake.store import MooncakeDistributedStore

from hicache.core.errors import CallerError

from ..address import Location, bytes_of, locate, probe
from ..base import (
    Address,
    Entry,
    Status,
    Storage,
    StorageOptions,
    Value,
    batches,
    gather,
    scatter,
    size_of,
    step,
    tell,
)
from ..calls import Call, Workers

SUMMARY = "Mooncake Store over its own client: mooncake://HOST:PORT of the master"

_FORM = "mooncake://HOST:PORT"
_QUERY = ("metrics", "segment", "protocol", "device", "local", "metadata")
_STAGED = 16 << 20  # bytes at a time: a deadline is for each
_BUFFER = 64 << 20  # bytes of the client's own, for single puts that we do not make
_TRANSFER_FAILED = -800
_CODES = {
    -200: (Status.FULL, "no room"),
    -600: (Status.CORRUPT, "a value is longer than its buffers"),
    -704: (Status.MISSING, ""),
    _TRANSFER_FAILED: (Status.FAILED, "the process that holds the value does not answer"),
    -900: (Status.FAILED, "the master does not answer"),
    -901: (Status.FAILED, "the master does not answer"),
}
_SETUP_S = 10.0
_METRICS = 9003  # Mooncake's own default
_CLOSE_S = 2.0
_LEAVE_S = 35.0  # a transfer from a client that hangs ends after 30 s at most

T = TypeVar("T")


def open_storage(address: Address, options: StorageOptions) -> Storage:
    """Connect to a master. Raises CallerError."""
    where = locate(address, port=50051, known=_QUERY, form=_FORM)
    query, timeout_s = where.query, options.timeout_s
    segment = bytes_of(query["segment"], "mooncake: segment") if "segment" in query else 0
    where.number("metrics", _METRICS)
    probe(where, timeout_s)
    # Mooncake reads its time-outs from the environment.
    os.environ.setdefault("MC_RPC_TIMEOUT_MS", str(max(1, int(timeout_s * 1000))))
    os.environ.setdefault("MC_TCP_STATUS_TIMEOUT_SEC", str(max(1, round(timeout_s))))
    client = MooncakeDistributedStore()
    arguments = (
        *(query.get("local", "127.0.0.1"), query.get("metadata", "P2PHANDSHAKE")),
        *(segment, _BUFFER, query.get("protocol", "tcp"), query.get("device", "")),
        f"{where.host}:{where.port}",
    )
    code = _alone(lambda: client.setup(*arguments), max(timeout_s, _SETUP_S))
    if code != 0:
        text = "no answer" if code is None else f"code {code}"
        raise CallerError(
            f"storage: expected a Mooncake master at mooncake://{where.host}:{where.port}, found "
            f"{text} from its client; is it a master, and does {query or 'tcp'} fit?"
        )
    return Mooncake(client, where, timeout_s)


def _alone(call: Callable[[], T], timeout_s: float) -> T | None:
    """The result of a call on a thread of its own; None if it is given up."""
    workers: Workers[None] = Workers("mooncake", lambda: None, lambda _: None)
    return workers.run(lambda _, __: call(), timeout_s, None)


class Mooncake(Storage):
    """A client of one master, used by several threads at a time."""

    def __init__(self, client: MooncakeDistributedStore, where: Location, timeout_s: float) -> None:
        self._client, self._where, self._timeout_s = client, where, timeout_s
        self._workers = Workers("mooncake", lambda: Staging(client), Staging.close)
        self._closed = False
        atexit.register(self._leave)

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        def ask(stage: Staging, call: Call) -> list[bool | None]:
            result = self._client.batch_is_exist(list(keys)) if keys else []
            return [None if code < 0 and _lost(code) else code == 1 for code in result]

        return self._workers.run(ask, self._timeout_s, [None] * len(keys))

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        statuses = [Status.FAILED] * len(keys)

        def get(stage: Staging, call: Call) -> list[Status]:
            for group in _groups(keys, values):
                names, starts, places, sizes = stage.lay(keys, values, group)
                codes = self._client.batch_get_into(names, places, sizes)
                with call.delivering():
                    for at, code, start, size in zip(group, codes, starts, sizes, strict=True):
                        statuses[at] = self._status(keys[at], code, size)
                        if statuses[at] is Status.DONE:
                            scatter(stage.memory[start : start + size], values[at])
                _went_on(codes)
            return statuses

        return self._workers.run(get, self._timeout_s, statuses)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        statuses = [Status.FAILED] * len(keys)

        def put(stage: Staging, call: Call) -> list[Status]:
            for group in _groups(keys, values):
                names, starts, places, sizes = stage.lay(keys, values, group)
                known = self._client.batch_remove(names, True)
                if all(code <= _TRANSFER_FAILED for code in known):
                    _lost(known[0])
                    break  # nobody answers: asking again would cost another time-out
                with call.delivering():
                    for at, start in zip(group, starts, strict=True):
                        gather(values[at], stage.memory[start:])
                codes = self._client.batch_put_from(names, places, sizes)
                with call.delivering():
                    for at, code in zip(group, codes, strict=True):
                        statuses[at] = Status.DONE if code == 0 else _lost(code)
                _went_on(codes)
            return statuses

        return self._workers.run(put, self._timeout_s, statuses)

    def delete(self, keys: Sequence[str]) -> list[Status]:
        def remove(stage: Staging, call: Call) -> list[Status]:
            codes = self._client.batch_remove(list(keys), True) if keys else []
            return [Status.DONE if code == 0 else _lost(code) for code in codes]

        return self._workers.run(remove, self._timeout_s, [Status.FAILED] * len(keys))

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Asks the master's second port for its keys, then for their sizes. Raises OSError if it
        cannot."""
        url = f"http://{self._where.host}:{self._where.number('metrics', _METRICS)}/get_all_keys"
        with urllib.request.urlopen(url, timeout=self._timeout_s) as answer:
            names = answer.read().decode().splitlines()
        keys = [key for key in names if key.startswith(prefix)]

        def sizes(stage: Staging, call: Call) -> list[int]:
            numbers: list[int] = []
            for key in keys:
                numbers.append(self._client.get_size(key))
                _went_on(numbers[-1:])
            return numbers

        result: list[int] = self._workers.run(sizes, self._timeout_s, [])
        if len(result) < len(keys):
            raise TimeoutError(f"no answer from {self._where.host}")
        pairs = zip(keys, result, strict=True)
        yield from (Entry(key, size, 0.0) for key, size in pairs if size >= 0)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._workers.close(self._timeout_s):  # else closing under a call would crash
            atexit.unregister(self._leave)
            _alone(self._client.close, max(self._timeout_s, _CLOSE_S))

    def _leave(self) -> None:
        """The process ends. Leaving while the client is in a call would crash it."""
        self.close()
        self._workers.join(_LEAVE_S)

    def _status(self, key: str, code: int, size: int) -> Status:
        """Of a read. A value of another length fails like a broken connection, or is cut."""
        if code == size:
            return Status.DONE
        if code == _TRANSFER_FAILED:
            result = self._client.get_size(key)
            code = code if result == size else result
        return Status.CORRUPT if code >= 0 else _lost(code)


def _lost(code: int) -> Status:
    """The status of a code that is an error. Tells why."""
    status, why = _CODES.get(code, (Status.FAILED, f"Mooncake's code {code}"))
    if why:
        tell(why)
    return status


def _went_on(codes: Sequence[int]) -> None:
    """The deadline begins anew, unless a server did not answer."""
    if all(code > _TRANSFER_FAILED for code in codes):
        step()


def _groups(keys: Sequence[str], values: Sequence[Value]) -> Iterator[list[int]]:
    """The numbers of the values, in runs for one call of the client each. Of a key that it is given
    twice it fills one buffer and answers for both, so each run has a key once."""
    rest = list(range(len(keys)))
    while rest:
        firsts = {keys[at]: at for at in reversed(rest)}.values()
        yield from batches(sorted(firsts), lambda at: size_of(values[at]), _STAGED)
        rest = sorted({*rest} - {*firsts})


class Staging:
    """Memory of one thread that the client knows. It grows to the largest batch."""

    def __init__(self, client: MooncakeDistributedStore) -> None:
        self._client, self.memory, self._address = client, memoryview(b""), 0

    def lay(
        self, keys: Sequence[str], values: Sequence[Value], group: Sequence[int]
    ) -> tuple[list[str], list[int], list[int], list[int]]:
        """Room for the values of a group: its keys, and where in the memory and for the client the
        values begin, and their bytes. What was in the memory is lost."""
        sizes = [size_of(values[at]) for at in group]
        size = max(_STAGED, sum(sizes))
        if size > self.memory.nbytes:
            self.close()
            array = np.empty(size, np.uint8)
            self.memory, self._address = array.data, array.ctypes.data
            self._client.register_buffer(self._address, size)
        starts = [0, *accumulate(sizes)][:-1]
        return [keys[at] for at in group], starts, [self._address + at for at in starts], sizes

    def close(self) -> None:
        if self.memory.nbytes:
            self._client.unregister_buffer(self._address)
            self.memory = memoryview(b"")
