"""Which rows of the measurements are predicted: by grade, by words, and a sample of each group.

Does not read or predict them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from hicache.core.errors import CallerError

from .predicting import Task
from .rows import Row
from .split import group


def chosen(rows: Sequence[Row], grades: Sequence[str], only: Sequence[str]) -> list[Row]:
    """The rows of these grades that every word matches. Raises CallerError if there is none.

    A word with * or ? is a pattern of the id. Another one is the grade, kind, accelerator, model,
    engine or engine@version of the row, or a part of its id or kind.
    """
    found = [row for row in rows if row.grade in grades]
    for word in only:
        found = [row for row in found if _matches(row, word)]
        if not found:
            raise CallerError(
                f"--only: expected an id, kind, GPU, model or engine of the rows, found {word!r}, "
                "which leaves none; name another one"
            )
    return found


def sampled(rows: Sequence[Row], count: int) -> list[Row]:
    """About so many rows, at least one of every group and kind, evenly spaced in each."""
    if count >= len(rows):
        return list(rows)
    strata: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        strata.setdefault((group(row), row.kind), []).append(row)
    wanted = set()
    for each in strata.values():
        some = max(1, round(len(each) * count / len(rows)))
        wanted |= {each[place * len(each) // some].id for place in range(some)}
    return [row for row in rows if row.id in wanted]


def tasks_of(rows: Sequence[Row], models: Sequence[str]) -> list[Task]:
    """Every row with every time model."""
    return [Task(row, times) for times in models for row in rows]


def _matches(row: Row, word: str) -> bool:
    low = word.lower()
    if "*" in low or "?" in low:
        return fnmatchcase(row.id.lower(), low)
    names = {
        row.grade.lower(),
        row.hardware,
        row.accelerator,
        row.model,
        row.engine,
        f"{row.engine}@{row.engine_version}",
    }
    return low in names or low in row.id.lower() or low in row.kind.lower()
