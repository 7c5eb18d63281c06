"""What storage did not do in a replay: a table of every loss, and a sentence that blames it.

The losses of a real store are counted in values as it has them (see hicache/storage/base), those of
a simulated one in pages.
"""

from __future__ import annotations

from rich.table import Table

from hicache.storage.base import Losses

from ..replaying.run import Run
from ..terminal.tables import table

_ROWS = {
    "outages": "times that it stopped answering",
    "write_outages": "times that it stopped taking writes",
    "lookups_unanswered": "look-ups without an answer",
    "reads_failed": "reads that failed",
    "reads_missing": "values that it said it has, and had not",
    "reads_corrupt": "values that did not verify",
    "writes_refused": "writes that it did not take",
    "deletes_failed": "deletes that failed",
    "late": "answers that came too late",
    "waited_s": "seconds in calls that failed",
}


def losses_table(run: Run) -> Table | None:
    """What the store did not do; None without storage, or if it did everything."""
    if run.storage is None or run.storage.losses == Losses():
        return None
    result = table("Not done by storage", "", "")
    for name, words in _ROWS.items():
        if count := getattr(run.storage.losses, name):
            result.add_row(words, f"{count:,.1f}" if name == "waited_s" else f"{count:,}")
    return result


def sentences(run: Run) -> list[str]:
    """What the store did not do, and what follows from that; empty if it did everything."""
    if run.storage is None:
        return []
    found = run.storage.losses
    told = [
        f"{words} {count:,} {unit}"
        for words, count, unit in (
            ("did not say whether it has", found.lookups_unanswered, "values"),
            ("did not deliver", found.reads_failed, "values"),
            ("promised and did not have", found.reads_missing, "values"),
            ("delivered", found.reads_corrupt, "values that did not verify"),
            ("did not take", found.writes_refused, "values"),
        )
        if count
    ]
    if not told:
        return []
    *first, last = told
    parts = f"{', '.join(first)} and {last}" if first else last
    times = [
        f"{words} {'once' if count == 1 else f'{count:,} times'}"
        for words, count in (
            ("stopped answering", found.outages),
            ("stopped taking writes", found.write_outages),
        )
        if count
    ]
    out = f" (it {' and '.join(times)})" if times else ""
    follows = (
        ["what it might have served was computed"] if len(told) > bool(found.writes_refused) else []
    )
    follows += ["later runs lack what it did not take"] if found.writes_refused else []
    return [f"Storage {parts}{out}: {', and '.join(follows)}."]
