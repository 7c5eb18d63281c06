"""SPEC Evicted (exit code 11), shrunk to 9 operations.

Before it was mended:

    SPEC Evicted: The core answers each event as the specification does.
        Finished(request=5, key=Key(11 pages), length=11): page 7 was not to be evicted
        expected none
        found    Evicted(tier=1, component=full, pages=[7], last_use=7, demoted=False)
    story:
        about request 5
        op 36: Arrived(request=5, key=Key(3 pages), length=3, match_pages=2, priority=0)
                 -> Matched(request=5, device_pages=1, host_pages=0, depths=(1))
                 -> Lookup(flight=16, request=5, first_page=1, digests=(32B), known_pages=0,
                     trailing_pages=(0))
        op 37: LookupDone(flight=16, pages=0)
                 -> Prefetched(request=5, first_page=1, asked_pages=1, found_pages=0,
                     fetched_pages=0, reason=miss)
        op 38: AdmitWanted(request=5, chunk=1)
                 -> Admitted(request=5, device_pages=1, host_pages=0, tokens_to_compute=2,
                     depths=(1), loaded_pages=(0), matched_pages=1)
                 -> Prefill(flight=17, request=5, start_token=1, end_token=2, tables=([0 4 5]),
                     after=(), completes_prompt=False, states=())
        op 39: PrefillDone(flight=17, ok=True)
                 -> Cached(request=5, pages=2, tables=([0 4 5]), states=())
                 -> Backup(flight=18, copies=(Copy(component=full, source=[4], target=[8])))
        op 42: ContinueWanted(request=5, chunk=1)
                 -> Prefill(flight=20, request=5, start_token=2, end_token=3, tables=([0 4 5]),
                     after=(), completes_prompt=True, states=())
        op 43: PrefillDone(flight=20, ok=True)
                 -> Cached(request=5, pages=3, tables=([0 4 5]), states=())
                 -> Backup(flight=21, copies=(Copy(component=full, source=[5], target=[9])))
        op 46: PagesWanted(request=5, length=4, computed_tokens=3)
                 -> Granted(request=5, tables=([0 4 5 6]), states=())
"""

from __future__ import annotations

from hicache.core.config import Config
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.tapes.tape import Act, Entry, Tape

TAPE = Tape(
    config=Config(page_size=1, device_pages=(12,), host_pages=(14,), storage=True),
    entries=(
        Entry("arrive", {"request": 0, "space": "", "tokens": [[0, 1], [1, 2]], "whole": False}),
        Entry("admit", {"chunk": 3, "request": 0}),
        Entry("restart", {}),
        Entry("arrive", {"request": 1, "space": "", "tokens": [[0, 1]], "whole": True}),
        Entry(
            "revisit",
            {
                "chunk": 4,
                "clear": True,
                "cold": ["full", "swa"],
                "others": [3],
                "polls": 1,
                "request": 2,
                "space": "",
                "tokens": [[0, 1], [1, 1], [2, 2]],
                "whole": False,
            },
            acts=(Act(512, 3, "fail"), Act(0, 0)),
        ),
        Entry(
            "arrive",
            {"request": 4, "space": "", "tokens": [[0, 1], [1, 2], [2, 1]], "whole": False},
        ),
        Entry("grow", {"behind": -1, "more": 1, "request": 2, "word": 0}, gap=0),
        Entry("hoard", {"leave": 1, "of": "full", "take": True}),
        Entry("alone", {"chunk": 1, "empty": False, "request": 5, "space": "", "tokens": [[0, 3]]}),
    ),
    seed=28261129,
)


def test_the_core_plays_it_clean() -> None:
    failure = replay(TAPE, load(), name=__file__).failure
    if failure is not None:  # an assert would not run under python -O
        raise AssertionError(failure.text)
