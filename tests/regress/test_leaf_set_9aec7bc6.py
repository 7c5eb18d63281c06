"""LEAF-SET (exit code 11), shrunk to 7 operations.

Before it was mended:

    LEAF-SET: Unlocked nodes without a child on their tier, and unlocked copies of other components,
        are exactly those that eviction can find, and each node knows its children on each tier.
        node 2 is a candidate on device of swa, garbage: False; expected an entry in part 6, found
            parts []
    story:
        about node 2
        op 7: AdmitWanted(request=0, chunk=1)
                 -> Refused(request=0, reason=no_pages, needed=1, available=0, preempt=-1,
                     component=full)
"""

from __future__ import annotations

from hicache.core.components import swa
from hicache.core.config import Config
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.tapes.tape import Entry, Tape

TAPE = Tape(
    config=Config(
        page_size=2,
        device_pages=(11, 11),
        host_pages=(0, 0),
        components=("full", "swa"),
        settings=(swa.Settings(window_tokens=15),),
    ),
    entries=(
        Entry("arrive", {"request": 0, "space": "", "tokens": [[0, 3]], "whole": False}),
        Entry(
            "arrive",
            {
                "request": 1,
                "space": "",
                "tokens": [[0, 3], [1, 1], [2, 2], [1, 4], [0, 4], [1, 3]],
                "whole": False,
            },
        ),
        Entry("admit", {"chunk": 17, "request": 1}),
        Entry("grow", {"behind": -1, "more": 2, "request": 1, "word": 0}),
        Entry("grow", {"behind": 0, "more": 2, "request": 1, "word": 0}),
        Entry("admit", {"chunk": 1, "request": 0}),
        Entry("grow", {"behind": 3, "more": 1, "request": 1, "word": 0}),
    ),
    seed=36884960909245,
)


def test_the_core_plays_it_clean() -> None:
    failure = replay(TAPE, load(), name=__file__).failure
    if failure is not None:  # an assert would not run under python -O
        raise AssertionError(failure.text)
