"""The other process of a double run: draws each tape again, replays it, and prints both results.

Reads lines of JSON from standard input and answers each with a line of JSON; see double_run, which
starts it and compares the results.
"""

from __future__ import annotations

import json
import sys
from dataclasses import astuple
from typing import Any

from invariants.fuzz.tapes import tape as tapes

from ..outside import entries
from .double_run import trail_of
from .planting import planted
from .work import Work


def played(given: dict[str, Any]) -> dict[str, object]:
    """The tape as it is drawn here, and its trail."""
    entries.load(given["outside"])
    tape = tapes.loads(given["tape"])
    work = Work(
        given["operations"],
        tuple(given["components"]),
        given["policy"],
        ranks=given["ranks"],
        passes=given["passes"],
        plant=given["plant"],
        eviction=given["eviction"],
        device=given["device"],
    )
    with planted(work.plant):
        trail = [astuple(step) for step in trail_of(tape)]
    return {"drawn": tapes.dumps(work.drawn(tape.seed)), "trail": trail}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(played(json.loads(line))), flush=True)
