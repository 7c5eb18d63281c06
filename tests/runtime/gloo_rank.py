"""One rank of a real process group; tests/golden/test_ranks starts two and reads what they print.

python -m tests.runtime.gloo_rank ADDRESS RANK
"""

import json
import sys
from datetime import timedelta

import torch.distributed as dist

from hicache.core.actions import Backup, Prefill
from hicache.core.config import Config
from hicache.core.events import BackupDone, PrefillDone
from hicache.core.types import NO_PAGES
from hicache.runtime.gloo_group import GlooGroup, join
from hicache.runtime.ranks import Agreement, RankError, agree_on_settings, alone, packed, upto

from .test_agreement import Scripted


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
    print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
