"""IndexError in feed (exit code 10), shrunk to 4 operations.

Before it was mended:

"""

from __future__ import annotations

from hicache.core.config import Config
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.tapes.tape import Act, Entry, Tape

TAPE = Tape(
    config=Config(page_size=1, device_pages=(3,), host_pages=(1,), passes=4),
    entries=(
        Entry(
            "revisit",
            {
                "chunk": 1,
                "clear": False,
                "cold": [],
                "others": [],
                "polls": 0,
                "request": 0,
                "space": "",
                "tokens": [[0, 1]],
                "whole": False,
            },
        ),
        Entry("wait", {"polls": 1}),
        Entry(
            "interrupt",
            {
                "again": 2,
                "chunk": 1,
                "clear": True,
                "cold": ["full", "swa"],
                "end": "none",
                "others": [],
                "pages": 1,
                "polls": 1,
                "request": 1,
                "space": "",
                "steps": ["pass", "load"],
                "then": ["again"],
                "tokens": [[0, 1], [1, 1], [0, 1]],
                "whole": False,
            },
            acts=(Act(2, 2), Act(0, 0, "fail")),
        ),
        Entry("prefill", {"chunk": 1, "request": 2}),
    ),
    seed=3200000067,
    ranks=2,
)


def test_the_core_plays_it_clean() -> None:
    failure = replay(TAPE, load(), name=__file__).failure
    if failure is not None:  # an assert would not run under python -O
        raise AssertionError(failure.text)
