"""A group of real processes: each collective is one all-gather of torch.distributed over gloo.

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
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hicache.core.errors import CallerError

from .group import Call, Turn, UnequalCollectives, Values, combined, differs

_WIDTH, _HEAD, _WORDS = 64, 10, 6
_ROOM = _WIDTH - _HEAD
_OPS = ("minimum", "broadcast", "conjunction")


class GlooGroup:
    """One rank of a process group. process_group: the default group unless given. An engine whose
    default group is on its device (nccl) must give a group on the CPU (gloo). Raises CallerError if
    torch.distributed is not initialised."""

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

    def conjunction(self, purpose: str, values: Sequence[int]) -> Turn[Values]:
        yield from ()
        return self._meet("conjunction", purpose, values)

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
        """Send a frame, and return the frames of all ranks."""
        frames = [torch.empty_like(frame) for _ in range(self.size)]
        try:
            dist.all_gather(frames, frame, group=self._group)
        except RuntimeError as error:
            raise UnequalCollectives(
                f"rank {self.rank} waited in vain at {mine}: {str(error).splitlines()[0]}"
            ) from error
        return [one.numpy() for one in frames]


def join(address: str, rank: int, size: int, timeout: Any = None) -> GlooGroup:
    """Make this process a rank. address, timeout: as in torch.distributed. The address is
    tcp://host:port or file://path. The timeout is a timedelta: how long to wait for the other
    ranks, now and at each collective."""
    dist.init_process_group(
        "gloo", init_method=address, rank=rank, world_size=size, timeout=timeout
    )
    return GlooGroup()


def leave() -> None:
    """Leave the process group."""
    dist.destroy_process_group()


def _frame(call: Call, at: int) -> torch.Tensor:
    """A frame with a call and its values from index `at` on."""
    frame = np.zeros(_WIDTH, dtype=np.int64)
    frame[:4] = (call.number, _OPS.index(call.op), call.root, len(call.values))
    name = call.purpose.encode()[: 8 * _WORDS].ljust(8 * _WORDS, b"\0")
    frame[4:_HEAD] = np.frombuffer(name, dtype="<i8")
    part = call.values[at : at + _ROOM]
    frame[_HEAD : _HEAD + len(part)] = part
    return torch.from_numpy(frame)


def _call(frame: Any) -> Call:
    """The call that a frame describes, with as many values as the rank has, all of them 0."""
    number, op, root, count = frame[:4].tolist()
    name = frame[4:_HEAD].astype("<i8").tobytes().rstrip(b"\0").decode(errors="replace")
    return Call(number, _OPS[op], name, (0,) * count, root)
