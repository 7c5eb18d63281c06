"""A group of real processes: each collective is an exchange of torch.distributed over gloo.

Every rank sends its frame to every other (all-to-all): in a ring, as of gloo's all-gather, only the
neighbours of a rank that ended would hear of it at once. With its values, every rank sends the text
of its call, so ranks that are at different collectives all notice at once. Each rank computes the
result from the same values.

    frame   int64[64]    the call in 128 bytes, and 48 values; further values in a second exchange
"""

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hicache.core.errors import CallerError

from .ranks import Call, Group, MissingRank, UnequalCollectives, Values, combined

_HEAD, _WIDTH = 16, 64  # words
WAIT = dist.default_pg_timeout / 6  # 5 minutes


class GlooGroup(Group):
    """One rank of a process group. process_group: the default group unless given. An engine whose
    default group is on its device (nccl) must give a group on the CPU (gloo). The timeout of the
    group bounds every wait."""

    waits = True

    def __init__(self, process_group: Any = None) -> None:
        if not dist.is_initialized():
            raise CallerError(
                "torch.distributed is not initialised; call join, or init_process_group, first"
            )
        super().__init__(dist.get_rank(process_group), dist.get_world_size(process_group))
        self._group = process_group

    def meet(self, call: Call) -> Values:
        values = np.array(call.values, np.int64)
        text = str(call).encode()[: 8 * _HEAD].ljust(8 * _HEAD)
        frame = np.zeros(_WIDTH, np.int64)
        frame[:_HEAD] = np.frombuffer(text, "<i8")
        first, rest = values[: _WIDTH - _HEAD], values[_WIDTH - _HEAD :]
        frame[_HEAD : _HEAD + len(first)] = first
        frames = self._exchange(call, frame)
        for rank, other in enumerate(frames):
            theirs = other[:_HEAD].astype("<i8").tobytes()
            if theirs != text:
                there = theirs.decode(errors="replace").rstrip()
                raise UnequalCollectives(f"rank {self.rank} is at {call}, rank {rank} at {there}")
        rows = frames[:, _HEAD : _HEAD + len(first)]
        if len(rest):
            rows = np.concatenate([rows, self._exchange(call, rest)], axis=1)
        return combined([call._replace(values=tuple(row)) for row in rows.tolist()])

    def _exchange(self, call: Call, sent: Any) -> Any:
        """Send words, and return those of all ranks: int64[rank, word]."""
        frames = np.tile(sent, (self.size, 1))
        received = np.empty_like(frames)
        try:
            dist.all_to_all_single(
                torch.from_numpy(received), torch.from_numpy(frames), group=self._group
            )
        except RuntimeError as error:
            raise MissingRank(
                f"rank {self.rank} waited in vain at {call}: {str(error).splitlines()[0]}"
            ) from error
        return received


def join(address: str, rank: int, size: int, timeout: Any = WAIT) -> GlooGroup:
    """Make this process a rank. The address is tcp://host:port, at which rank 0 listens, or
    file://path of a file that is not there yet. timeout: a timedelta, how long to wait for the
    other ranks, now and at each collective."""
    try:
        dist.init_process_group(
            "gloo", init_method=address, rank=rank, world_size=size, timeout=timeout
        )
    except (RuntimeError, ValueError) as error:
        raise MissingRank(
            f"rank {rank} of {size} did not meet the others at {address}: "
            f"{str(error).splitlines()[0]}; start all again, with one address"
        ) from error
    return GlooGroup()
