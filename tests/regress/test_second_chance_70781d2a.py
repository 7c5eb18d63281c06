"""SECOND-CHANCE (exit code 11), shrunk to 4 operations.

Before it was mended:

    SECOND-CHANCE: Under a policy with second chances and with full attention alone, each victim on
        device is the one that the two queues give: from small while it has its share of the pool's
        pages, else from main, the first copy that has used up its chances, while those before it go
        to the end of main; the core counts the same pages in small and in the ghost.
        expected 2 pages in the small queue, found 1
    story:
        op 1: Arrived(request=0, key=Key(1 pages), length=1, match_pages=0, priority=0)
                 -> Matched(request=0, device_pages=0, host_pages=0, depths=(0))
        op 2: AdmitWanted(request=0, chunk=1)
                 -> Admitted(request=0, device_pages=0, host_pages=0, tokens_to_compute=1,
                     depths=(0), loaded_pages=(0), matched_pages=0)
                 -> Prefill(flight=1, request=0, start_token=0, end_token=1, tables=([0]), after=(),
                     completes_prompt=True, states=())
        op 3: PrefillDone(flight=1, ok=True)
                 -> Cached(request=0, pages=1, tables=([0]), states=())
        op 4: Finished(request=0, key=Key(1 pages), length=1)
                 -> Released(request=0)
        op 5: EvictWanted(tier=0, component=full, pages=7)
                 -> Evicted(tier=0, component=full, pages=[0], last_use=3, demoted=False)
        op 6: EvictWanted(tier=0, component=full, pages=7)
        op 7: EvictWanted(tier=1, component=full, pages=0)
        op 8: Arrived(request=1, key=Key(1 pages), length=1, match_pages=0, priority=0)
                 -> Matched(request=1, device_pages=0, host_pages=0, depths=(0))
        op 9: AdmitWanted(request=1, chunk=1)
                 -> Admitted(request=1, device_pages=0, host_pages=0, tokens_to_compute=1,
                     depths=(0), loaded_pages=(0), matched_pages=0)
                 -> Prefill(flight=2, request=1, start_token=0, end_token=1, tables=([0]), after=(),
                     completes_prompt=True, states=())
        op 10: PrefillDone(flight=2, ok=True)
                 -> Cached(request=1, pages=1, tables=([0]), states=())
        op 11: Arrived(request=2, key=Key(2 pages), length=2, match_pages=1, priority=0)
"""

from __future__ import annotations

from hicache.core.config import Config
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.tapes.tape import Entry, Tape

TAPE = Tape(
    config=Config(page_size=1, device_pages=(7,), eviction_policy="s3_fifo", pin_pages=(6,)),
    entries=(
        Entry(
            "revisit",
            {
                "chunk": 1,
                "clear": True,
                "cold": [],
                "others": [],
                "polls": 1,
                "request": 0,
                "space": "",
                "tokens": [[0, 1]],
                "whole": False,
            },
        ),
        Entry(
            "warm",
            {
                "attach": True,
                "chunk": 1,
                "clear": True,
                "cold": [],
                "empty": "both",
                "late": 0,
                "others": [],
                "polls": 0,
                "request": 1,
                "space": "",
                "tokens": [[1, 1]],
                "whole": False,
            },
        ),
        Entry("arrive", {"request": 2, "space": "", "tokens": [[0, 1], [2, 1]], "whole": False}),
        Entry("pin", {"pin": 1, "space": "", "tier": 0, "tokens": [[0, 1]]}),
    ),
    seed=703169,
)


def test_the_core_plays_it_clean() -> None:
    failure = replay(TAPE, load(), name=__file__).failure
    if failure is not None:  # an assert would not run under python -O
        raise AssertionError(failure.text)
