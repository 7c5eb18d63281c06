"""LOCK-BAL (exit code 11), shrunk to 13 operations.

Before it was mended:

    LOCK-BAL: A component of a node has, on each tier, exactly one holder for each running request
        whose boundary requires it, for each open flight that pins it and for each pinned prefix,
        and at quiescence for the pinned prefixes alone.
        node 2, device mamba: expected 2 holders, found 1 (request 15)
    story:
        about node 2
        op 21: PrefillDone(flight=4, ok=True)
                 -> Cached(request=4, pages=2, tables=([0 1 2 3 4 5 6 7 ... 19 in all]),
                     states=(StateSlots(component=mamba, source=-1, working=0, checkpoint_slots=(4,
                     3), interval=1, checkpoints=())))
                 -> Backup(flight=6, copies=(Copy(component=full, source=[1], target=[1]),
                     Copy(component=mamba, source=[1], target=[1])))
        op 24: BackupDone(flight=6, ok=True)
                 -> Store(flight=9, pieces=(Piece(component=full, first_page=1, digests=(32B),
                     pages=[1]), Piece(component=mamba, first_page=1, digests=(32B), pages=[1])))
        op 26: Retracted(request=4, key=Key(19 pages), length=19, match_pages=18,
            committed_tokens=2)
                 -> Released(request=4)
        op 32: StoreDone(flight=9, pages=2)
        op 35: EvictWanted(tier=0, component=full, pages=1)
                 -> Evicted(tier=0, component=mamba, pages=[1], last_use=4, demoted=True)
                 -> Evicted(tier=0, component=full, pages=[1], last_use=4, demoted=True)
        op 48: AdmitWanted(request=11, chunk=4)
                 -> Admitted(request=11, device_pages=0, host_pages=2, tokens_to_compute=10,
                     depths=(2, 2), loaded_pages=(2, 1), matched_pages=2)
                 -> Load(flight=13, request=11, copies=(Copy(component=full, source=[0],
                     target=[0]), Copy(component=full, source=[1], target=[1]),
                     Copy(component=mamba, source=[1], target=[1])))
                 -> Prefill(flight=14, request=11, start_token=2, end_token=6, tables=([0 1 2 3 4 5
                     6 7 ... 12 in all]), after=(13), completes_prompt=False,
                     states=(StateSlots(component=mamba, source=1, working=2, checkpoint_slots=(0,
                     4), interval=1, checkpoints=((6, 0)))))
        op 51: LoadDone(flight=13, ok=False)
                 -> Restarted(request=11)
        op 53: AdmitWanted(request=14, chunk=6)
                 -> Admitted(request=14, device_pages=0, host_pages=2, tokens_to_compute=18,
                     depths=(2, 2), loaded_pages=(2, 1), matched_pages=2)
                 -> Load(flight=16, request=14, copies=(Copy(component=full, source=[0],
                     target=[2]), Copy(component=full, source=[1], target=[3]),
                     Copy(component=mamba, source=[1], target=[2])))
"""

from __future__ import annotations

from hicache.core.config import Config
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.tapes.tape import Act, Entry, Tape

TAPE = Tape(
    config=Config(
        page_size=1,
        device_pages=(80, 60),
        host_pages=(626, 240),
        components=("full", "mamba"),
        storage=True,
        pin_host_pages=(612, 40),
        passes=4,
    ),
    entries=(
        Entry(
            "interrupt",
            {
                "again": 5,
                "chunk": 20,
                "clear": True,
                "cold": ["full", "mamba"],
                "end": "abort",
                "others": [4],
                "pages": 1,
                "polls": 1,
                "request": 3,
                "space": "",
                "steps": ["pass", "load", "grow", "release", "grow"],
                "then": ["backup", "grow", "pass", "evict device"],
                "tokens": [
                    [2, 2],
                    [0, 2],
                    [1, 1],
                    [0, 1],
                    [2, 1],
                    [1, 3],
                    [0, 1],
                    [1, 1],
                    [2, 2],
                    [0, 2],
                    [1, 1],
                    [0, 1],
                    [1, 1],
                    [0, 1],
                ],
                "whole": False,
            },
            gap=5,
        ),
        Entry("pin", {"pin": 0, "space": "", "tier": 1, "tokens": [[2, 2], [0, 2], [1, 1]]}, gap=5),
        Entry(
            "interrupt",
            {
                "again": 13,
                "chunk": 1,
                "clear": True,
                "cold": ["full", "mamba"],
                "end": "retract",
                "others": [12],
                "pages": 4,
                "polls": 4,
                "request": 11,
                "space": "",
                "steps": ["pass", "load", "chunk", "pass"],
                "then": ["load", "admit", "pass", "pass"],
                "tokens": [[2, 2], [0, 2], [1, 1], [0, 1], [2, 1], [1, 1], [0, 1], [2, 3]],
                "whole": False,
            },
            gap=5,
        ),
        Entry(
            "interrupt",
            {
                "again": 15,
                "chunk": 20,
                "clear": True,
                "cold": [],
                "end": "finish",
                "others": [],
                "pages": 1,
                "polls": 0,
                "request": 14,
                "space": "",
                "steps": ["pass", "grow"],
                "then": ["evict host", "load", "load"],
                "tokens": [
                    [2, 2],
                    [0, 2],
                    [1, 1],
                    [0, 1],
                    [2, 1],
                    [1, 3],
                    [0, 1],
                    [1, 1],
                    [2, 2],
                    [0, 2],
                    [1, 1],
                    [0, 1],
                    [2, 2],
                ],
                "whole": False,
            },
            gap=5,
            poll=False,
        ),
        Entry(
            "outage",
            {
                "pages": 1,
                "steps": [
                    "backup",
                    "store",
                    "evict device",
                    "evict host",
                    "evict device",
                    "evict host",
                ],
            },
            gap=5,
        ),
        Entry(
            "revisit",
            {
                "chunk": 10,
                "clear": False,
                "cold": [],
                "others": [16],
                "polls": 4,
                "request": 15,
                "space": "",
                "tokens": [[2, 2]],
                "whole": False,
            },
            gap=5,
            poll=False,
            acts=(Act(2, 1), Act(1, 2, "late error"), Act(1, 3, "late")),
        ),
        Entry(
            "admit",
            {"chunk": 4, "request": 11},
            gap=2000,
            acts=(Act(1, 1), Act(2, 0, "late error"), Act(0, 1)),
        ),
        Entry("pin", {"pin": 3, "space": "", "tier": 0, "tokens": [[1099512676368, 6]]}, gap=40),
        Entry(
            "admit",
            {"chunk": 48, "request": 15},
            poll=False,
            acts=(Act(2, 1), Act(0, 3), Act(1, 3, "late")),
        ),
        Entry("wait", {"polls": 1}, gap=0),
        Entry("admit", {"chunk": 6, "request": 14}, acts=(Act(0, 0, "lost"), Act(1, 2), Act(2, 3))),
        Entry("wait", {"polls": 1}, gap=40, poll=False),
        Entry("prefill", {"chunk": 5, "request": 14}, gap=5),
    ),
    seed=5400000216,
    order="starve:5:4",
    ranks=3,
)


def test_the_core_plays_it_clean() -> None:
    failure = replay(TAPE, load(), name=__file__).failure
    if failure is not None:  # an assert would not run under python -O
        raise AssertionError(failure.text)
