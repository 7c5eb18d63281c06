"""Where measurements are, and which rows of them are predicted, fitted on, or judge.

Rows are split by group, once and by a hash: a group is one accelerator, model and engine. So a
figure that was fitted is never judged by a row of its own group. A checkout has the measurements
and the public traces in a folder `shared` beside it, if nobody says it. Does not read or predict
rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

from hicache.core.errors import CallerError

from .rows import Row

DATA, TRACES = "HICACHE_PUBLISHED", "HICACHE_TRACES"
_BESIDE = Path(__file__).resolve().parents[3] / "shared"


def data_folder(named: str | None) -> Path:
    """The folder or file of the measurements: as named, of the environment, or beside."""
    return Path(named or os.environ.get(DATA) or _BESIDE / "published")


def trace_folder() -> Path:
    """The folder of public traces: of the environment, or beside."""
    return Path(os.environ.get(TRACES) or _BESIDE / "traces")


# The constants of the table of halves: fitted on 2026-11-23 to the half to fit, and not changed.
HALF = Path(__file__).with_name("half.json")
FIT, JUDGE = "fit", "judge"
HALVES = (FIT, JUDGE)


def group(row: Row) -> str:
    """The group of a row: accelerator, model and engine, such as "h100|llama-3.1-8b|vllm"."""
    return f"{row.hardware}|{row.model}|{row.engine}"


def half(row: Row) -> str:
    """ "fit" or "judge", from the first byte of the SHA-256 of the group."""
    return half_of(group(row))


def half_of(name: str) -> str:
    return JUDGE if sha256(name.encode()).digest()[0] % 2 else FIT


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
