"""EXPIRED (exit code 11), shrunk to 8 operations.

Before it was mended:

    EXPIRED: When a period ends, every node that was not used for as many periods as configured
        leaves the tree with all its copies, unless it or a node below it is locked; besides these,
        only nodes go that lost their last live boundary by this.
        node 1 went, last used at 6, and what expires was not used after 5
    story:
        about node 1
        op 6: PrefillDone(flight=1, ok=True)
                 -> Cached(request=0, pages=2, tables=([0 1], [-1 1]), states=())
                 -> Backup(flight=3, copies=(Copy(component=full, source=[0], target=[0]),
                     Copy(component=full, source=[1], target=[1]), Copy(component=swa, source=[1],
                     target=[0])))
        op 7: PrefillDone(flight=2, ok=True)
                 -> Cached(request=1, pages=1, tables=([0], [2]), states=())
        op 8: Finished(request=0, key=Key(2 pages), length=2)
                 -> Released(request=0)
        op 10: Finished(request=1, key=Key(1 pages), length=1)
                 -> Released(request=1)
        op 11: EvictWanted(tier=0, component=swa, pages=1)
                 -> Evicted(tier=0, component=swa, pages=[2], last_use=6, demoted=False)
        op 12: BackupDone(flight=3, ok=True)
        op 13: TimePassed()
                 -> Evicted(tier=1, component=swa, pages=[0], last_use=5, demoted=False)
                 -> Evicted(tier=1, component=full, pages=[1], last_use=5, demoted=False)
                 -> Evicted(tier=0, component=swa, pages=[1], last_use=5, demoted=False)
                 -> Evicted(tier=0, component=full, pages=[1], last_use=5, demoted=False)
                 -> Evicted(tier=1, component=full, pages=[0], last_use=6, demoted=False)
                 -> Evicted(tier=0, component=full, pages=[0], last_use=6, demoted=False)
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
        device_pages=(3, 3),
        host_pages=(2, 1),
        components=("full", "swa"),
        settings=(swa.Settings(window_tokens=1),),
        ttl_periods=1,
    ),
    entries=(
        Entry(
            "revisit",
            {
                "chunk": 2,
                "clear": True,
                "cold": ["full"],
                "others": [1],
                "polls": 1,
                "request": 0,
                "space": "",
                "tokens": [[0, 1], [1, 1]],
                "whole": False,
            },
        ),
        Entry("wait", {"polls": 1}),
        Entry("wait", {"polls": 1}),
        Entry("finish", {"ahead": 0, "request": 0}),
        Entry("age", {}),
        Entry("finish", {"ahead": 0, "request": 1}),
        Entry("evict", {"component": "swa", "pages": 1, "tier": 0}),
        Entry("age", {}),
    ),
    seed=154146595135739,
    order="pct:39434:3:16",
    executor="device:1:1:0:8",
)


def test_the_core_plays_it_clean() -> None:
    failure = replay(TAPE, load(), name=__file__).failure
    if failure is not None:  # an assert would not run under python -O
        raise AssertionError(failure.text)
