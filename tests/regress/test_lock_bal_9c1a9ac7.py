"""LOCK-BAL (exit code 11), shrunk to 5 operations.

Before it was mended:

    LOCK-BAL: A component of a node has, on each tier, exactly one holder for each running request
        whose boundary requires it, for each open flight that pins it and for each pinned prefix,
        and at quiescence for the pinned prefixes alone.
        node 2, device: expected 2 holders, found 1 (request 1)
    story:
        about node 2
        op 14: FetchDone(flight=5, pages=1)
                 -> Prefetched(request=1, first_page=0, asked_pages=1, found_pages=1,
                     fetched_pages=1, reason=)
        op 15: AdmitWanted(request=1, chunk=1)
                 -> Admitted(request=1, device_pages=0, host_pages=1, tokens_to_compute=2,
                     depths=(1), loaded_pages=(1), matched_pages=1)
                 -> Load(flight=6, request=1, copies=(Copy(component=full, source=[0], target=[0])))
                 -> Prefill(flight=7, request=1, start_token=1, end_token=2, tables=([0 1 2]),
                     after=(6), completes_prompt=False, states=())
        op 17: PrefillDone(flight=7, ok=True)
                 -> Cached(request=1, pages=2, tables=([0 1 2]), states=())
        op 19: LoadDone(flight=6, ok=True)
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
            "warm",
            {
                "attach": True,
                "chunk": 1,
                "clear": True,
                "cold": [],
                "empty": "nothing",
                "late": 0,
                "others": [],
                "polls": 1,
                "request": 0,
                "space": "lora",
                "tokens": [[0, 1]],
                "whole": False,
            },
        ),
        Entry("evict", {"tier": 0, "component": "full", "pages": 0}),
        Entry(
            "warm",
            {
                "attach": False,
                "chunk": 1,
                "clear": True,
                "cold": [],
                "empty": "both",
                "late": 2,
                "others": [],
                "polls": 1,
                "request": 1,
                "space": "lora",
                "tokens": [[0, 1], [1, 2]],
                "whole": False,
            },
            acts=(Act(8, 2), Act(2, 0), Act(0, 0)),
        ),
        Entry("prefill", {"chunk": 1, "request": 1}, acts=(Act(4, 0),)),
        Entry("alone", {"chunk": 1, "empty": False, "request": 2, "space": "", "tokens": [[1, 1]]}),
    ),
    seed=3200000106,
    ranks=2,
)


def test_the_core_plays_it_clean() -> None:
    failure = replay(TAPE, load(), name=__file__).failure
    if failure is not None:  # an assert would not run under python -O
        raise AssertionError(failure.text)
