"""Histories of stores whose servers are really stopped, killed, full and told to refuse.

The clock of the breaker is virtual all the same: a call that meets a stopped server takes its
time-out. A call without an answer may still be carried out later, so less is certain than in
`laws`. A busy machine may cost a time-out where nothing is wrong; that is an outage like others.
"""

from __future__ import annotations

import random
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

from hicache import registry
from hicache.storage.base import Storage
from hicache.storage.breaker import Breaker
from hicache.storage.verified import Verified
from tests.contract.rigs_stores import ROOM, Rig, started
from tests.patience import PATIENCE_S
from traces.servers.base import SERVERS, end

from .laws import OPTIONS, Broken, Clock, Faulty, Judge, act

SHARES = {"redis": 6, "s3": 3, "mooncake": 1}  # of the histories
FAULTS = {
    "redis": ("hung", "refusing", "full", "read-only", "restarted", "wiped", "fine"),
    "s3": ("hung", "hung", "hung", "hung", "restarted", "fine"),
    "mooncake": ("hung", "holder hung", "hung", "fine"),
}
CLIENT_S = {"redis": 0.5, "s3": 0.5, "mooncake": 1.0}  # time-outs
_SETTINGS = {
    "refusing": (["config set min-replicas-to-write 1"], ["config set min-replicas-to-write 0"]),
    "full": (
        ["config set maxmemory-policy noeviction", "config set maxmemory 1"],
        [f"config set maxmemory {ROOM}", "config set maxmemory-policy allkeys-lru"],
    ),
    "read-only": (["replicaof 127.0.0.1 1"], ["replicaof no one"]),
    "wiped": (["flushall"], []),
    "fine": ([], []),
}


class Real(Faulty):
    """A store whose server has the fault, or has not."""

    def _fails(self, kind: str) -> bool:
        self.calls[kind] += 1
        if "hung" in self.fault:
            self.clock.s += CLIENT_S["redis"]
        return False


@contextmanager
def faulty(rig: Rig, fault: str, judge: Judge, folder: Path) -> Iterator[None]:
    """The server has the fault for the time of a `with`."""
    assert rig.server is not None
    port = int(re.findall(r"127\.0\.0\.1:(\d+)", rig.address)[0])
    if "hung" in fault:
        process = rig.server.processes[fault == "holder hung"]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)
        return
    if fault == "restarted":
        for process in rig.server.processes:
            process.kill()
            end(process)
        judge.lost_all()
        yield
        server = registry.load(SERVERS, rig.scheme).launch(port, folder, ROOM)
        rig.server.processes[:] = server.processes
        judge.lost_all()
        return
    before, after = _SETTINGS[fault]
    for command in before:
        tell(port, command)
    if fault == "wiped":
        judge.lost_all()
    try:
        yield
    finally:
        for command in after:
            tell(port, command)


def tell(port: int, command: str) -> None:
    """A command for a Redis server."""
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(command.encode() + b"\r\n")
        assert one.recv(100) == b"+OK\r\n"


def play(store: Storage, rig: Rig, draw: random.Random, name: str, folder: Path) -> Judge:
    """One history. Raises Broken."""
    clock = Clock()
    real = Real(store, clock, draw)
    judge = Judge(clock, late=True)
    judge.store = Verified(
        Breaker(real, name, clock, judge.notice, OPTIONS, start=lambda job: job())
    )
    for _ in range(draw.randint(1, 3)):
        for _ in range(draw.randint(1, 4)):
            act(judge, draw, name)
        real.fault = draw.choice(FAULTS[rig.scheme])
        with faulty(rig, real.fault, judge, folder):
            well = judge.state != "out"
            for _ in range(draw.randint(1, 10)):
                clock.s += draw.choice([0.0, 0.1, 0.1, 0.7, 3.0])
                act(judge, draw, name)
            if real.fault in ("refusing", "full", "read-only") and well and judge.state == "out":
                judge.need("in time" in judge.notices[-1][1], "refused writes cost the reads")
        real.fault = "fine"
    key = f"{'c' * 64}/{name}/0of1/{'f' * 64}"
    until = time.monotonic() + PATIENCE_S
    while not (judge.write([key]) and judge.read([key]) and judge.state == "fine"):
        judge.need(time.monotonic() < until, f"not back, and the last word was: {judge.state}")
        clock.s += OPTIONS.longest_pause_s + 0.1
        time.sleep(0.01)
    return judge


def play_some(scheme: str, histories: int, seed: int, folder: Path) -> Counter[str]:
    """Histories of one kind of server, which is started once. Returns what they met."""
    met: Counter[str] = Counter()
    with started(scheme, folder) as rig, closing(rig.open(CLIENT_S[scheme])) as store:
        for number in range(histories):
            draw = random.Random(f"{scheme}/{seed}/{number}")
            try:
                judge = play(store, rig, draw, f"{scheme}{seed}h{number}", folder)
            except Broken as error:
                raise Broken(f"{scheme}, seed {seed}, history {number}: {error}") from error
            met[scheme] += 1
            met["notices"] += len(judge.notices)
            met.update({name: round(count) for name, count in asdict(judge.counted).items()})
    return met


def play_many(histories: int, seed: int, folder: Path) -> Counter[str]:
    """Histories over all kinds of servers."""
    whole = sum(SHARES.values())
    met: Counter[str] = Counter()
    for scheme, share in SHARES.items():
        own = folder / scheme
        own.mkdir(exist_ok=True)
        met += play_some(scheme, -(-histories * share // whole), seed, own)
    return met
