"""Constants for rows that judge them: fitted to all rows but those that are left out in turn.

    groups   one group at a time: what a user of an engine, accelerator and model gets that nobody
             has published
    rows     half of the rows of every group, then the other half: what a user gets of whose engine,
             accelerator and model other runs are published

Passes are recorded once, with the default constants: so no row that is left out has a part in what
predicts it. Does not predict or judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hicache.core.errors import CallerError
from sim.fitted.factors import Factor

from ..choosing import group, half_of
from ..rows import Row
from . import GROUPS, ROWS
from .fit import Progress, factors_of, recorded
from .solving import solve


def crossed(
    rows: Sequence[Row], by: str, progress: Progress = lambda what, part: None
) -> dict[str, tuple[Factor, ...]]:
    """By id of a row, the factors that were fitted without it. In `rows` those of groups that have
    no row in the other half are not there. Raises CallerError where nothing is left to fit."""
    part = {row.id: PARTS[by](row) for row in rows}
    samples = recorded(rows, progress)
    parts = sorted({part[one.row] for one in samples})
    if len(parts) < 2:
        raise CallerError(
            f"--leave-out {by}: expected rows of at least two {_SAID[by]} that constants can be "
            f"fitted to, found {len(parts)}; name more measurements with --data"
        )
    fitted, known = {}, {}
    for number, left in enumerate(parts):
        kept = [one for one in samples if part[one.row] != left]
        fitted[left] = factors_of(kept, solve(kept))
        known[left] = {one.group for one in kept}
        progress("constants", (number + 1) / len(parts))
    return {
        row.id: fitted[part[row.id]]
        for row in rows
        if part[row.id] in fitted and (by == GROUPS or group(row) in known[part[row.id]])
    }


PARTS: Mapping[str, Callable[[Row], str]] = {
    GROUPS: group,
    ROWS: lambda row: half_of(row.id),
}
_SAID = {GROUPS: "groups", ROWS: "halves"}
