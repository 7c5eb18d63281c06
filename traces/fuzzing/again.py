"""What the fresh process of a double run does: draw the tape again, replay it, say both.

Reads from standard input what `fuzzing/twice` sends. Must not live here: the comparison.
"""

from __future__ import annotations

import json
import sys
from dataclasses import astuple

from invariants.fuzz.tapes import tape as tapes

from ..outside import entries
from .planting import planted
from .twice import trail_of
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
    )
    with planted(work.plant):
        trail = [astuple(step) for step in trail_of(tape)]
    json.dump({"drawn": tapes.dumps(work.drawn(tape.seed)), "trail": trail}, sys.stdout)
