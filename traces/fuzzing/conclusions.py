"""What a hunt means, in plain words: the last lines of its summary.

Each sentence follows from figures of the summary. Does not print; see report.
"""

from __future__ import annotations

from .report import Tally


def conclusions(
    tally: Tally, complete: bool, canary: bool, lost: bool = False, checks: str = "every"
) -> list[str]:
    """The sentences. complete: whether all sequences were played. lost: whether an error of the
    harness ended the run. checks: the level of checks."""
    if canary:
        return _canary(tally) if complete else [_stopped(tally, lost)]
    told = [] if complete else [_stopped(tally, lost)]
    if tally.kinds:
        kinds = f" in {len(tally.kinds)} ways" if len(tally.kinds) > 1 else ""
        which = "this failure" if len(tally.kinds) == 1 else "the failure with the fewest entries"
        return [
            *told,
            f"{_count(tally.failures, 'sequence')} of {tally.sequences:,} failed{kinds}.",
            f"Begin with {which}: shrink its tape, then explain the smaller one.",
        ]
    if tally.missed:
        return [
            *told,
            "No check failed, but the run did not reach states that it should have reached. It "
            "says less than a run of this length usually does.",
        ]
    if not tally.sequences:
        return told
    played = f"{_count(tally.sequences, 'sequence')} with {tally.events:,} events"
    return [
        *told,
        f"{'No sequence failed' if checks == 'off' else 'No check failed'} in {played}"
        + ("; no invariant was checked." if checks == "off" else "."),
        "This does not prove that there is no bug. Another --seed or a longer run (--seconds 600) "
        "draws other sequences.",
    ]


def _stopped(tally: Tally, lost: bool) -> str:
    why = "An error ended the run" if lost else "The run was interrupted"
    return f"{why} after {_count(tally.sequences, 'sequence')}."


def _canary(tally: Tally) -> list[str]:
    if tally.kinds:
        return [
            f"The planted bug was found after {_count(tally.sequences, 'sequence')}, so the checks "
            "do find bugs of its kind."
        ]
    return [
        f"No check found the planted bug in {_count(tally.sequences, 'sequence')}. Do not trust a "
        "run without failures until this is mended."
    ]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
