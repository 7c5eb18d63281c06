"""A group of real processes: each collective is one exchange of torch.distributed over gloo.

Every rank sends its frame to every other (all-to-all). In a ring, as of gloo's all-gather, only the
neighbours of a rank that ended would hear of it at once, and the others at the end of their wait.

With its values, every rank sends a description of its collective (number, purpose, number of
values). So ranks that are at different collectives all notice at once and raise an error. If a rank
never comes, the others raise an error after the timeout of the process group. Each rank computes
the result from the same values.

    frame   int64[64]    number, op, root, number of values, the purpose in 48 bytes, 54 values;
                         further values are sent in further frames

Does not start processes, and does not know what ranks agree on; see `agreement`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
import torch.distributed as dist

from hicache.clock import Clock
from hicache.core.errors import CallerError

from .group import (
    ROOM,
    Call,
    MissingRank,
    Turn,
    UnequalCollectives,
    Values,
    combined,
    differs,
    of_ranks,
)

_HEAD, _WORDS = 10, 6
_WIDTH = _HEAD + ROOM
_OPS = ("minimum", "broadcast", "conjunction")
WAIT = dist.default_pg_timeout / 6  # 5 minutes
_FIND_S = 2.0  # at most, to find out who is missing
_LEAVE_S = 0.5  # at most, to leave
_LOOK_S = 0.01
_REAL = Clock()


def parts(wait_s: float) -> tuple[float, float, float]:
    """The longest wait in parts: of a collective, to find out who is missing, and to leave."""
    find_s, leave_s = min(_FIND_S, 0.4 * wait_s), min(_LEAVE_S, 0.1 * wait_s)
    return wait_s - find_s - leave_s, find_s, leave_s


class GlooGroup:
    """One rank of a process group. process_group: the default group unless given. An engine whose
    default group is on its device (nccl) must give a group on the CPU (gloo). Raises CallerError if
    torch.distributed is not initialised."""

    waits = True

    def __init__(self, process_group: Any = None, meeting: Meeting | None = None) -> None:
        """meeting: where ranks find out who is missing; without it, nobody is named."""
        if not dist.is_initialized():
            raise CallerError(
                "group: expected torch.distributed to be initialised, found that it is not; call "
                "join, or torch.distributed.init_process_group, first"
            )
        self.rank: int = dist.get_rank(process_group)
        self.size: int = dist.get_world_size(process_group)
        self._group = process_group
        self._meeting = meeting
        self.entered = 0  # collectives

    def minimum(self, purpose: str, values: Sequence[int]) -> Turn[Values]:
        yield from ()
        return self._meet("minimum", purpose, values)

    def conjunction(self, purpose: str, values: Sequence[int]) -> Turn[Values]:
        yield from ()
        return self._meet("conjunction", purpose, values)

    def broadcast(self, purpose: str, values: Sequence[int], root: int = 0) -> Turn[Values]:
        yield from ()
        return self._meet("broadcast", purpose, values, root)

    def _meet(self, op: str, purpose: str, values: Sequence[int], root: int = 0) -> Values:
        self.entered += 1
        mine = Call(self.entered, op, purpose, tuple(values), root)
        first = self._exchange(mine, _frame(mine, 0))
        heads = first[:, :_HEAD]
        if not (heads == heads[self.rank]).all():
            for rank, other in enumerate(first):
                theirs = _call(other)
                if differs(_call(first[self.rank]), theirs):
                    raise UnequalCollectives(
                        f"rank {self.rank} is at {mine}, rank {rank} at {theirs}"
                    )
        parts = [first] + [
            self._exchange(mine, _frame(mine, at)) for at in range(ROOM, len(values), ROOM)
        ]
        rows = np.concatenate([part[:, _HEAD:] for part in parts], axis=1)[:, : len(values)]
        return combined([mine._replace(values=tuple(row)) for row in rows.tolist()])

    def _exchange(self, mine: Call, frame: Any) -> Any:
        """Send a frame, and return the frames of all ranks: int64[rank, word]."""
        sent, found = np.tile(frame, (self.size, 1)), np.empty((self.size, _WIDTH), np.int64)
        try:
            dist.all_to_all_single(
                torch.from_numpy(found), torch.from_numpy(sent), group=self._group
            )
        except RuntimeError as error:
            raise self._missing(mine, error) from error
        return found

    def _missing(self, mine: Call, error: RuntimeError) -> MissingRank:
        """The error for a collective to which not all ranks came."""
        where = f"rank {self.rank} waited in vain at {mine}"
        last = f"collective {mine.number - 1} is the last that all agreed on"
        if self._meeting is None:
            return MissingRank(f"{where}: {str(error).splitlines()[0]}; {last}")
        leave()  # so that all others that wait hear of it now
        missing = self._meeting.missing(mine.number)
        who = of_ranks(missing) if missing else "a rank"
        verb = "do" if len(missing) > 1 else "does"
        return MissingRank(
            f"{who} ended, or {verb} not answer: {where}, and {last}; see what {who} said last, "
            "and start all ranks again",
            missing,
        )


class Meeting:
    """Where the ranks of a group meet: it tells who has come, and who is there when one is lost."""

    def __init__(
        self, address: str, rank: int, size: int, timeout: Any, clock: Clock = _REAL
    ) -> None:
        """Waits until all ranks have come. Raises CallerError, within the timeout, for an address
        that cannot be used, and MissingRank for ranks that did not come."""
        if size < 1 or not 0 <= rank < size:
            raise CallerError(f"rank: expected 0 to {size - 1} of {size} ranks, found {rank}")
        self._rank, self._size, self._clock = rank, size, clock
        wait_s = timeout.total_seconds()
        collective_s, self._find_s, leave_s = parts(wait_s)
        self._more_s = leave_s / 2
        self.timeout = timeout * (collective_s / wait_s)
        self.store = _store(address, rank, size, timeout)
        if self.store.add(f"taken/{rank}", 1) > 1:
            raise CallerError(
                f"rank {rank} at {address}: expected one process, found another that is that rank; "
                "give each its own rank, and a new address to a new start"
            )
        self.store.set(f"size/{rank}", str(size))
        if missing := self._await("size/{}", wait_s):
            raise MissingRank(
                f"{of_ranks(missing)} did not come to {address} within "
                f"{wait_s:g} s; start all {size} ranks, with the same address",
                missing,
            )
        sizes = {one: self.store.get(f"size/{one}").decode() for one in range(size)}
        wrong = [one for one, found in sizes.items() if found != str(size)]
        if wrong:
            raise CallerError(
                f"ranks: expected {size} on every rank, as on rank {rank}, found "
                f"{sizes[wrong[0]]} on {of_ranks(wrong)}; give all ranks the same"
            )

    def missing(self, number: int) -> list[int]:
        """After a collective failed: the ranks that say nothing of it."""
        with suppress(RuntimeError):  # the store may be gone with the rank that has it
            self.store.set(f"lost/{self._rank}", str(number))
        # rank 0 may have the store, which the others still read
        return self._await("lost/{}", self._find_s + (0 if self._rank else self._more_s))

    def _await(self, key: str, wait_s: float) -> list[int]:
        """The ranks without this key at the end of the time. The store itself may wait a second
        more, or for ever if rank 0 has it and hangs."""
        keys, due = [key.format(rank) for rank in range(self._size)], self._clock.now_s() + wait_s
        missing = [0]

        def ask() -> None:
            with suppress(RuntimeError):
                while not self.store.check(keys) and self._clock.now_s() < due:
                    self._clock.sleep(_LOOK_S)
                missing[:] = [rank for rank, one in enumerate(keys) if not self.store.check([one])]

        asking = Thread(target=ask, daemon=True)
        asking.start()
        asking.join(wait_s + self._more_s)
        return missing


def _store(address: str, rank: int, size: int, timeout: Any) -> Any:
    """What ranks exchange before they are a group."""
    found = urlsplit(address)
    if found.scheme == "file" and found.path:
        return dist.FileStore(found.path, size)  # type: ignore[attr-defined]
    if found.scheme != "tcp" or not found.hostname or not found.port:
        raise CallerError(
            f"address of the ranks: expected tcp://HOST:PORT or file://PATH, found {address!r}"
        )
    try:
        place = found.hostname, found.port, None
        # it tries once more after the time has passed
        made = dist.TCPStore  # type: ignore[attr-defined]
        return made(*place, rank == 0, timeout / 2, wait_for_workers=False)
    except RuntimeError as error:
        if rank == 0:
            used = "EADDRINUSE" in str(error)
            what = "a port that is in use" if used else str(error).splitlines()[0]
            raise CallerError(
                f"{address}: expected an address of this machine with a free port, found {what}; "
                "give another to all ranks"
            ) from None
        raise MissingRank(
            f"rank 0 did not come to {address} within {timeout.total_seconds():g} s; start it "
            "first, on the machine of that address",
            [0],
        ) from None


def join(address: str, rank: int, size: int, timeout: Any = WAIT) -> GlooGroup:
    """Make this process a rank. The address is tcp://host:port, at which rank 0 listens, or
    file://path of a file that is not there yet. timeout: a timedelta, how long to wait for the
    other ranks, now and at each collective."""
    meeting = Meeting(address, rank, size, timeout)
    try:
        dist.init_process_group(
            "gloo", store=meeting.store, rank=rank, world_size=size, timeout=meeting.timeout
        )
    except RuntimeError as error:
        raise MissingRank(
            f"rank {rank} did not reach all others: {str(error).splitlines()[0]}; start all ranks "
            "again"
        ) from error
    return GlooGroup(meeting=meeting)


def leave() -> None:
    """Leave the process group. Without effect if this rank left it, as it does when it misses
    another one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _frame(call: Call, at: int) -> Any:
    """A frame with a call and its values from index `at` on."""
    frame = np.zeros(_WIDTH, dtype=np.int64)
    frame[:4] = (call.number, _OPS.index(call.op), call.root, len(call.values))
    name = call.purpose.encode()[: 8 * _WORDS].ljust(8 * _WORDS, b"\0")
    frame[4:_HEAD] = np.frombuffer(name, dtype="<i8")
    part = call.values[at : at + ROOM]
    frame[_HEAD : _HEAD + len(part)] = part
    return frame


def _call(frame: Any) -> Call:
    """The call that a frame describes, with as many values as the rank has, all of them 0."""
    number, op, root, count = frame[:4].tolist()
    name = frame[4:_HEAD].astype("<i8").tobytes().rstrip(b"\0").decode(errors="replace")
    return Call(number, _OPS[op], name, (0,) * count, root)
