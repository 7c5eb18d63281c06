"""What vLLM's offloading managers say is on host, and what is there; and the file tier below, whose
threads are told when to work. Scripts copy definitions from here."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_doubles import Memory
from invariants.fuzz.targets._vllm_worker import MOVING, TORN

MOST_MISSED = 6


def host_chunks(scheduler: Any) -> Any:
    """The manager of the host tier."""
    manager = scheduler.connector.connector_scheduler.manager
    return getattr(manager, "primary_tier", manager)


def chunks_of(manager: Any) -> dict[bytes, Any]:
    """The chunks of the host tier by key: `OffloadKey`, a block hash and a group."""
    tables = [one for one in vars(manager._policy).values() if hasattr(one, "items")]
    return {key: chunk for one in tables for key, chunk in one.items() if hasattr(chunk, "ref_cnt")}


def audit_host(manager: Any, host: Any, memory: Memory, factor: int) -> None:
    """Raises Broken unless every chunk on host has one key and holds what that stands for."""
    chunks = chunks_of(manager)
    numbers = [chunk.chunk_id for chunk in chunks.values()]
    free = list(manager._free_list)
    once = len(set(numbers) | set(free)) == len(numbers) + len(free)
    need(once, "OWN", "a chunk of the host has two keys, or is free and has one", "host")
    made = manager._num_allocated_chunks
    text = f"{made} chunks of the host were taken, {len(numbers)} are cached, {len(free)} free"
    need(made == len(numbers) + len(free), "POOL-SUM", text, "host")
    for key, chunk in chunks.items():
        if chunk.ref_cnt < 0:
            continue
        means = memory.means.get(key[-36:-4])
        if means is None:
            continue
        last, size = means[1] - 1, memory.groups[key[-1]].block
        owner, rows = host.get(chunk.chunk_id, last // size % factor)
        row = last % size if len(rows) == size else 0
        if owner != key[-1] or not rows or rows[row] != means[0]:
            held = {MOVING: "is still being written"}.get(owner, "holds something else")
            if owner == key[-1] and rows and rows[row] == TORN:
                held = "holds a block that was overwritten while a store read it"
            text = f"chunk {chunk.chunk_id} of the host is cached for {means[1]} tokens"
            kind = f"host {memory.groups[key[-1]].kind}"
            need(False, "BYTES", f"{text} of group {key[-1]}, and {held}", kind)


def audit_released(manager: Any) -> None:
    """Raises Broken if a chunk on host is held or pending while nothing is under way."""
    for chunk in chunks_of(manager).values():
        if chunk.ref_cnt:
            said = "pending" if chunk.ref_cnt < 0 else "held"
            text = f"chunk {chunk.chunk_id} of the host is {said}, and nothing is under way"
            need(False, "QUIESCENCE", text, f"host {said}")


class Idle:
    """Stands in for a thread: it never runs by itself."""

    def __init__(self, **given: Any) -> None:
        self.name = given.get("name", "")

    def start(self) -> None:
        """What it would do is done when `Files` says so."""

    def join(self, timeout: float | None = None) -> None:
        """It is not running."""


IDLE = SimpleNamespace(Thread=Idle, Lock=threading.Lock, Condition=threading.Condition)


class Turns:
    """Stands in for the condition on which the threads of a pool wait: lets the pool's own loop
    carry out one task, and then ends it."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.tasks = -1  # that the loop may still take; -1: it is not running

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *error: object) -> None:
        """There is no lock to release."""

    def notify(self, count: int = 1) -> None:
        """Nobody waits."""

    notify_all = notify

    def wait_for(self, holds: Any, timeout: float | None = None) -> bool:
        if self.tasks < 0:  # somebody waits until nothing is left to do
            while not holds():
                self.take()
        elif self.tasks:
            self.tasks -= 1
        else:
            self.pool._stop = True
        return True

    def take(self) -> None:
        """Carries out the first task."""
        self.tasks = 1
        self.pool._worker(True)
        self.tasks, self.pool._stop = -1, False


class Files:
    """The file tier of a tiering manager, with its threads replaced by turns that are given here.
    Files are real."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.tier = manager.secondary_tiers[0]
        self.pool = self.tier._pool
        self.lookups = self.tier._lookup_manager
        self.pool._condition = self.turns = Turns(self.pool)
        self.known: set[int] = set()
        self.asked = 0
        self.missed: Counter[bytes] = Counter()  # by key: fetches that found no file

    def began(self) -> list[tuple[str, int]]:
        """The jobs and look-ups that are new: what they do, and their number."""
        found = []
        for kind, tasks in (("fetch", self.pool._load_q), ("store", self.pool._store_q)):
            for _, state in tasks:
                if state.job_id not in self.known:
                    self.known.add(state.job_id)
                    found.append((kind, state.job_id))
        for _ in range(self.lookups._lookup_queue.qsize() - self.asked):
            self.asked += 1
            found.append(("lookup", 0))
        return found

    def busy(self) -> bool:
        """Whether anything waits for its turn."""
        return bool(self.asked or self.pool._load_q or self.pool._store_q)

    def drain_jobs(self) -> None:
        """Carries out everything that waits."""
        self.look_up()
        while self.pool._load_q or self.pool._store_q:
            self.turns.take()

    def look_up(self) -> None:
        """The thread for look-ups answers everything that was asked."""
        if self.asked:
            self.lookups._lookup_queue.put(None)
            self.lookups._worker()
            self.asked = 0

    def carry_out(self, job: int, lose: bool = False) -> None:
        """A thread carries out a job. lose: one of the files that it reads is gone."""
        keys = self._keys(job)
        if lose and keys:
            self._path(keys[job % len(keys)]).unlink(missing_ok=True)
        if any(one[1].job_id == job for one in self.pool._load_q):
            for key in keys:
                self.missed[key] += not self._path(key).exists()
        for tasks in (self.pool._load_q, self.pool._store_q):
            mine = [one for one in tasks if one[1].job_id == job]
            for one in mine:
                tasks.remove(one)
                (self.pool._load_q).appendleft(one)
                self.turns.take()

    def _path(self, key: bytes) -> Path:
        return Path(self.tier.file_mapper.get_file_name(key))

    def _keys(self, job: int) -> list[bytes]:
        """The chunks of a job."""
        for table in vars(self.manager).values():
            found = table.get(job) if isinstance(table, dict) else None
            found = getattr(found, "transfer_job", getattr(found, "job_metadata", found))
            keys = getattr(found, "keys", None)
            if keys is not None:
                return list(keys)
        return []


def audit_files(files: Any) -> None:
    """Raises Broken if a file that is gone is fetched again and again."""
    for key, times in files.missed.items():
        text = f"the file of a chunk of group {key[-1]} is gone, and was fetched {times} times"
        need(times <= MOST_MISSED, "PROGRESS", text, "lost file")
