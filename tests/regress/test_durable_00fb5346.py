"""DURABLE (exit code 11), shrunk to 4 operations.

Before it was mended:

    DURABLE: A copy to host that was made stays there until it is evicted: at rest, everything that
        a use began to copy is on host, unless the copy failed; a successful copy is published where
        the policy lets it be. Under a policy that backs up on eviction, no copy that serves a
        boundary leaves the device without a host copy while host has room.
        device page 11, which served a live boundary, went and is not on host; its node needed [1]
            pages there, and could have had [7]
    story:
        about device page 11
        op 19: EvictWanted(tier=0, component=full, pages=12)
                 -> Evicted(tier=1, component=full, pages=[9], last_use=12, demoted=False)
                 -> Backup(flight=6, copies=(Copy(component=full, source=[10], target=[9])))
                 -> Evicted(tier=0, component=full, pages=[11], last_use=12, demoted=False)
                 -> Evicted(tier=0, component=full, pages=[9], last_use=12, demoted=False)
                 -> Evicted(tier=0, component=full, pages=[1 2 3 4 5 6 7 8], last_use=12,
                     demoted=True)
                 -> Evicted(tier=0, component=full, pages=[0], last_use=12, demoted=True)
"""

from __future__ import annotations

from hicache.core.config import Config
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.tapes.tape import Entry, Tape

TAPE = Tape(
    config=Config(page_size=1, device_pages=(12,), host_pages=(10,), write_policy="write_back"),
    entries=(
        Entry(
            "revisit",
            {
                "chunk": 10,
                "clear": True,
                "cold": ["full"],
                "others": [],
                "polls": 1,
                "request": 0,
                "space": "",
                "tokens": [[0, 11]],
                "whole": False,
            },
        ),
        Entry(
            "revisit",
            {
                "chunk": 1,
                "clear": True,
                "cold": ["full"],
                "others": [],
                "polls": 1,
                "request": 1,
                "space": "",
                "tokens": [[0, 1]],
                "whole": False,
            },
        ),
        Entry("arrive", {"request": 2, "space": "", "tokens": [[1, 1]], "whole": False}),
        Entry("admit", {"chunk": 1, "request": 2}),
    ),
    seed=921000043,
)


def test_the_core_plays_it_clean() -> None:
    failure = replay(TAPE, load(), name=__file__).failure
    if failure is not None:  # an assert would not run under python -O
        raise AssertionError(failure.text)
