"""Ranks of a real process group: two that agree, of which tests/golden/test_ranks reads what they
print, or four of which one is lost, for test_gloo.

python -m tests.runtime.gloo_rank ADDRESS [lost]
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from hicache.core.actions import Backup, Prefill
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, PrefillDone
from hicache.core.types import NO_PAGES
from hicache.runtime.gloo_group import GlooGroup, join
from hicache.runtime.ranks import (
    Agreement,
    MissingRank,
    RankError,
    agree_on_settings,
    alone,
    packed,
    upto,
)

from .test_agreement import Scripted

SIZE = 4


def forked(main: Callable[[str, int], None], address: str, size: int) -> None:
    """Runs each rank in a process of its own, all of which have loaded torch once. The last line
    that is printed has what each ended with."""
    ranks = []
    for rank in range(size):
        ranks.append(os.fork())
        if not ranks[-1]:
            main(address, rank)
            os._exit(0)
    say([os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks])


def say(result: object) -> None:
    """A line of its own, whoever else prints."""
    os.write(1, json.dumps(result).encode() + b"\n")


def message_of(group: GlooGroup) -> dict[str, object]:
    """What each kind of question comes to."""
    rank = group.rank
    many = [rank * 1000 + at for at in range(130)]
    row: dict[str, object] = {
        "minimum": alone(group.minimum("least", [rank, 5 - rank])),
        "minimum of many": alone(group.minimum("least", many))[-1],
        "conjunction": alone(group.conjunction("both", [6 + rank, 3 << 60])),
        "a set of 130": alone(group.conjunction("both", packed([upto(130)], [130]))),
        "broadcast": alone(group.broadcast("root's", many, root=1))[-1],
    }
    agreed = alone(agree_on_settings(Config(4, (8 + rank,), (30 - rank,)), group))
    row["settings"] = (agreed.device_pages, agreed.host_pages)
    first, last = [BackupDone(1)], [BackupDone(2, rank == 1)]
    executor = Scripted([first, last, []] if rank == 0 else [last, [], first])
    agreement = Agreement(executor, group)
    agreement.submit(Backup(1, ()))
    agreement.submit(Backup(2, ()))
    agreement.begin(Prefill(3, 0, 0, 1, (NO_PAGES,), (), True))
    agreement.end(PrefillDone(3, rank == 0))
    row["replies"] = [[list(reply) for reply in agreement.poll()] for _ in range(3)]
    return row


def main(address: str, rank: int) -> None:
    group = join(address, rank, 2, timedelta(seconds=60))
    result = message_of(group)
    try:
        alone(group.minimum(f"purpose {rank}", [0]))
    except RankError as error:
        result["purpose"] = str(error)
    say(result)
    dist.destroy_process_group()


def lost(address: str, rank: int) -> None:
    """Ranks whose settings differ, and of which the last is killed."""
    group = join(address, rank, SIZE, timedelta(seconds=60))
    policy = "write_back" if rank == 3 else "write_through"
    config = Config(8 if rank == 2 else 4, (8,), (30,), write_policy=policy)
    result: dict[str, Any] = {"rank": rank}
    try:
        alone(agree_on_settings(config, group))
    except CallerError as error:
        result["differs"] = str(error)
    alone(group.minimum("all have seen it", [0]))
    if rank == SIZE - 1:
        say(result)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        alone(group.minimum("a killed rank", [0]))
    except MissingRank as error:
        result["lost"] = str(error)
    say(result)


if __name__ == "__main__":
    forked(*((lost, sys.argv[1], SIZE) if "lost" in sys.argv else (main, sys.argv[1], 2)))
