"""The child process of a double run: draws the tape again, replays it, and prints both results.

Reads JSON from standard input and writes JSON to standard output; see double_run, which starts it
and compares the results.
"""

from __future__ import annotations

import json
import sys
from dataclasses import astuple

from invariants.fuzz.tapes import tape as tapes

from ..outside import entries
from .double_run import trail_of
from .planting import planted
from .work import Work

if __name__ == "__main__":
    given = json.load(sys.stdin)
    entries.load(given["outside"])
    tape = tapes.loads(given["tape"])
    work = Work(
        given["operations"],
        tuple(given["components"]),
        given["policy"],
        ranks=given["ranks"],
        plant=given["plant"],
        eviction=given["eviction"],
        device=given["device"],
    )
    with planted(work.plant):
        trail = [astuple(step) for step in trail_of(tape)]
    json.dump({"drawn": tapes.dumps(work.drawn(tape.seed)), "trail": trail}, sys.stdout)
