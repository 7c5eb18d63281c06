"""Lives of a server that are killed, all with one directory: `python -m ... DIRECTORY SEED LIVES`.

Each life serves prompts and tells, page by page, what the storage has acknowledged. It is killed
with SIGKILL after a drawn number of such pages and a drawn moment. Then a new server must serve
every page that any life was told of, byte for byte, and must answer prompts without a wrong byte.

Every life is a fork of this process, which has no threads, so a life costs no start of Python.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from hicache.core.actions import Fetch, Outcome, Piece, Store
from hicache.core.events import Event, FetchDone, StoreDone
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.storage.workers import WorkerOptions
from tests.patience import PATIENCE_S

from .server import Server, prompts_of

OPTIONS = WorkerOptions(readers=2, writers=2, batch_bytes=2000)


class Acknowledged:
    """An observer that writes a line for each page that is stored."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._stores: dict[int, Store] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        if isinstance(event, StoreDone):
            action = self._stores.pop(event.flight)
            pages = [(one.component, digest) for one in action.pieces for digest in one.digests]
            for component, digest in pages[: event.pages]:
                os.write(self._pipe, f"{component} {digest.hex()}\n".encode())

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self._stores |= {one.flight: one for one in outcomes if isinstance(one, Store)}


def live(address: str, seed: int, pipe: int) -> None:
    with Server(OPTIONS, (Acknowledged(pipe),)) as server:
        server.attachment.attach(address)
        for round_ in range(1000):
            server.serve(prompts_of(1000 * seed + round_), settle=False)
            if not round_ % 3:
                server.settle()
                server.forget()


def check(address: str, told: set[tuple[str, bytes]], pipe: int) -> None:
    """Write "fine" if a new server serves everything."""
    with Server(OPTIONS) as server:
        server.attachment.attach(address)
        for flight, (component, digest) in enumerate(sorted(told), 1_000_000):
            page = Piece(component, 0, (digest,), np.array([0]))
            server.first.storage.submit(Fetch(flight, 0, 0, (page,), 1))
            server.first.storage.start()
            [answer] = answers(server)
            assert answer == FetchDone(flight, 1), f"{component} {digest.hex()} was lost"
            expected = server.first.expected(component, int.from_bytes(digest[:8], "little"))
            found = server.first.device.digest(Tier.HOST, component, 0)
            assert found == expected, f"{component} {digest.hex()} has other bytes"
        for seed in range(3):
            server.serve(prompts_of(seed))
            server.forget()
        assert server.notices == []
    os.write(pipe, b"fine\n")


def answers(server: Server) -> list[object]:
    end = time.monotonic() + PATIENCE_S
    while not (found := server.first.storage.poll()):
        assert time.monotonic() < end
        time.sleep(0.0002)
    return list(found)


def forked(body: Callable[[int], None]) -> tuple[int, int]:
    """Run `body` with a pipe in a child. Returns the child and the end to read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        body(writing)
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def main(directory: str, seed: int, lives: int) -> None:
    address = f"file:{directory}"
    draw = np.random.default_rng(seed)
    told: set[tuple[str, bytes]] = set()
    for life in range(lives):
        wanted, delay_s = int(draw.integers(0, 60)), float(draw.random()) * 0.02
        number = int(draw.integers(0, 1000))
        child, pipe = forked(lambda writing, number=number: live(address, number, writing))  # type: ignore[misc]
        with os.fdopen(pipe, "rb") as lines:
            heard = [lines.readline() for _ in range(wanted)]
            time.sleep(delay_s)
            os.kill(child, signal.SIGKILL)
            heard += lines.readlines()
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the life ended by itself"
        for line in heard:
            component, digest = line.decode().split()
            told.add((component, bytes.fromhex(digest)))
        checker, pipe = forked(lambda writing: check(address, told, writing))
        with os.fdopen(pipe, "rb") as lines:
            said = lines.read()
        os.waitpid(checker, 0)
        assert said == b"fine\n", f"after life {life}"
    print(f"{lives} lives, {len(told)} pages acknowledged and served")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
