"""Ranks whose settings differ, and of which the last is killed. For test_gloo.

python -m tests.runtime.gloo_lost ADDRESS
"""

import os
import signal
import sys
from datetime import timedelta
from typing import Any

from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.runtime.gloo_group import join
from hicache.runtime.ranks import MissingRank, agree_on_settings, alone

from .gloo_rank import forked, say

SIZE = 4


def main(address: str, rank: int) -> None:
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
    forked(main, sys.argv[1], SIZE)
