"""The hunt: takes the results of sequences as they arrive, keeps failures, and says what ended it.

Does not start workers (see executors), write files (see files) or print the summary (see report).
"""

from __future__ import annotations

import time

from hicache.core.errors import CallerError

from ..executors.base import Results, WorkerLost
from ..terminal.streams import print_error
from .files import Files
from .report import Tally
from .work import Result

_BAD_INPUT = 2


def hunt(
    results: Results[Result], tally: Tally, files: Files, canary: bool, first: bool
) -> tuple[bool, int]:
    """Adds all results to the tally; with `canary` or `first`, only up to the first failure.

    Returns whether it was not interrupted, and the exit code of what ended it, or 0.
    """
    complete, lost, begun = True, 0, time.monotonic()
    try:
        for result in results:
            failure = tally.add(result, time.monotonic() - begun)
            if failure is not None and not canary:
                files.keep(failure, tally)
            if tally.kinds and (canary or first):
                break
    except KeyboardInterrupt:
        complete = False
        print_error("interrupted; found so far:")
    except (WorkerLost, CallerError) as error:
        if not tally.sequences and isinstance(error, CallerError):
            raise
        complete, lost = False, getattr(error, "exit_code", _BAD_INPUT)
        print_error(str(error))
    return complete, lost
