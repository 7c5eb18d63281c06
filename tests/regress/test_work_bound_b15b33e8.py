"""WORK-BOUND (exit code 11), shrunk to 2 operations.

Before it was mended:

    WORK-BOUND: The number of nodes that an operation touches is bounded by the nodes on the paths
        that it uses or copies, the nodes that were added, removed or evicted, their neighbours, and
        the nodes whose live distance changed.
        9 nodes touched by UnpinWanted; expected at most 8: 8 + 0 on paths + 3 * (0 victims + 0 that
            came or went) + 2 * 0 that serve another distance now
    story:
        about node 1
        op 7: PrefillDone(flight=3, ok=True)
                 -> Cached(request=0, pages=3, tables=([0 1 2 3 4 5 6 7 ... 9 in all], [-1 -1 0 -1
                     -1 -1 -1 -1 ... 9 in all]), states=())
                 -> Backup(flight=4, copies=(Copy(component=full, source=[2], target=[2]),
                     Copy(component=swa, source=[0], target=[1])))
        op 8: BackupDone(flight=4, ok=True)
        op 10: PrefillDone(flight=5, ok=True)
                 -> Cached(request=0, pages=4, tables=([0 1 2 3 4 5 6 7 ... 9 in all], [-1 -1 -1 1
                     -1 -1 -1 -1 ... 9 in all]), states=())
                 -> Backup(flight=6, copies=(Copy(component=full, source=[3], target=[3]),
                     Copy(component=swa, source=[1], target=[2])))
        op 11: BackupDone(flight=6, ok=True)
        op 13: PrefillDone(flight=7, ok=True)
                 -> Cached(request=0, pages=5, tables=([0 1 2 3 4 5 6 7 ... 9 in all], [-1 -1 -1 -1
                     0 -1 -1 -1 ... 9 in all]), states=())
                 -> Backup(flight=8, copies=(Copy(component=full, source=[4], target=[4]),
                     Copy(component=swa, source=[0], target=[3])))
        op 14: BackupDone(flight=8, ok=True)
        op 16: PrefillDone(flight=9, ok=True)
                 -> Cached(request=0, pages=6, tables=([0 1 2 3 4 5 6 7 ... 9 in all], [-1 -1 -1 -1
                     -1 1 -1 -1 ... 9 in all]), states=())
                 -> Backup(flight=10, copies=(Copy(component=full, source=[5], target=[5]),
                     Copy(component=swa, source=[1], target=[4])))
        op 17: BackupDone(flight=10, ok=True)
        op 19: PrefillDone(flight=11, ok=True)
                 -> Cached(request=0, pages=7, tables=([0 1 2 3 4 5 6 7 ... 9 in all], [-1 -1 -1 -1
                     -1 -1 0 -1 ... 9 in all]), states=())
                 -> Backup(flight=12, copies=(Copy(component=full, source=[6], target=[6]),
                     Copy(component=swa, source=[0], target=[5])))
        op 20: BackupDone(flight=12, ok=True)
"""

from __future__ import annotations

from hicache.core.components import swa
from hicache.core.config import Config
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.tapes.tape import Entry, Tape

TAPE = Tape(
    config=Config(
        page_size=1,
        device_pages=(9, 2),
        host_pages=(148, 21),
        components=("full", "swa"),
        settings=(swa.Settings(window_tokens=1),),
        pin_host_pages=(148, 21),
    ),
    entries=(
        Entry(
            "arrive", {"request": 0, "space": "lora", "tokens": [[0, 7], [1, 2]], "whole": False}
        ),
        Entry("pin", {"pin": 3, "space": "lora", "tier": 1, "tokens": [[0, 7], [1, 2]]}),
    ),
    seed=920000006,
)


def test_the_core_plays_it_clean() -> None:
    failure = replay(TAPE, load(), name=__file__).failure
    if failure is not None:  # an assert would not run under python -O
        raise AssertionError(failure.text)
