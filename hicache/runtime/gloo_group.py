"""A group of real processes: each collective is one all-gather of torch.distributed over gloo.

Every rank sends what it is at (number, purpose, how many values) along with its values, so ranks
at unequal collectives see it at once, and all of them say so; one that never comes is an error when
the process group's timeout is over. Each rank computes the result from the same numbers.

    frame   int64[64]    number, op, root, how many, the purpose in 48 bytes, 54 values; more values
                         take more frames

Lives here: frames. Must not live here: starting processes, or what is agreed on (agreement).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hicache.core.errors import CallerError

from .group import Call, Turn, UnequalCollectives, Values, combined, differs

_WIDTH, _HEAD, _WORDS = 64, 10, 6
_ROOM = _WIDTH - _HEAD
_OPS = ("minimum", "broadcast")


class GlooGroup:
    """One rank of a process group. process_group: the default one unless given; where an engine has
    one for its device (nccl), give it one of the CPU (gloo) here."""

    waits = True

    def __init__(self, process_group: Any = None) -> None:
        if not dist.is_initialized():
            raise CallerError(
                "group: expected torch.distributed to be initialised, found that it is not; call "
                "join, or torch.distributed.init_process_group, first"
            )
        self.rank: int = dist.get_rank(process_group)
        self.size: int = dist.get_world_size(process_group)
        self._group = process_group
        self._entered = 0

    def minimum(self, purpose: str, values: Sequence[int]) -> Turn[Values]:
        yield from ()
        return self._meet("minimum", purpose, values)

    def broadcast(self, purpose: str, values: Sequence[int], root: int = 0) -> Turn[Values]:
        yield from ()
        return self._meet("broadcast", purpose, values, root)

    def _meet(self, op: str, purpose: str, values: Sequence[int], root: int = 0) -> Values:
        self._entered += 1
        mine = Call(self._entered, op, purpose, tuple(values), root)
        first = self._exchange(mine, _frame(mine, 0))
        for rank, other in enumerate(first):
            theirs = _call(other)
            if differs(_call(first[self.rank]), theirs):
                raise UnequalCollectives(f"rank {self.rank} is at {mine}, rank {rank} at {theirs}")
        parts = [first] + [
            self._exchange(mine, _frame(mine, at)) for at in range(_ROOM, len(values), _ROOM)
        ]
        calls = []
        for rank in range(self.size):
            found = np.concatenate([part[rank][_HEAD:] for part in parts])[: len(values)]
            calls.append(mine._replace(values=tuple(found.tolist())))
        return combined(calls)

    def _exchange(self, mine: Call, frame: torch.Tensor) -> list[Any]:
        """This frame of every rank."""
        frames = [torch.empty_like(frame) for _ in range(self.size)]
        try:
            dist.all_gather(frames, frame, group=self._group)
        except RuntimeError as error:
            raise UnequalCollectives(
                f"rank {self.rank} waited in vain at {mine}: {str(error).splitlines()[0]}"
            ) from error
        return [one.numpy() for one in frames]


def join(address: str, rank: int, size: int, timeout: Any = None) -> GlooGroup:
    """This process becomes a rank. address, timeout: as of torch.distributed (tcp://host:port or
    file://path; a timedelta, how long to wait for the others, now and at each collective)."""
    dist.init_process_group(
        "gloo", init_method=address, rank=rank, world_size=size, timeout=timeout
    )
    return GlooGroup()


def leave() -> None:
    """This process is a rank no more."""
    dist.destroy_process_group()


def _frame(call: Call, at: int) -> torch.Tensor:
    """A call and its values from `at` on."""
    frame = np.zeros(_WIDTH, dtype=np.int64)
    frame[:4] = (call.number, _OPS.index(call.op), call.root, len(call.values))
    name = call.purpose.encode()[: 8 * _WORDS].ljust(8 * _WORDS, b"\0")
    frame[4:_HEAD] = np.frombuffer(name, dtype="<i8")
    part = call.values[at : at + _ROOM]
    frame[_HEAD : _HEAD + len(part)] = part
    return torch.from_numpy(frame)


def _call(frame: Any) -> Call:
    """What a rank is at, with as many values as it has."""
    number, op, root, count = frame[:4].tolist()
    name = frame[4:_HEAD].astype("<i8").tobytes().rstrip(b"\0").decode(errors="replace")
    return Call(number, _OPS[op], name, (0,) * count, root)
