"""Constants for rows that judge them: fitted to all rows but those that are left out in turn.

    groups   one group at a time: what a user of an engine, accelerator and model gets that nobody
             has published
    rows     half of the rows of every group, then the other half: what a user gets of whose engine,
             accelerator and model other runs are published

What is left out has no part in what predicts it, neither in the fit nor in the passes that are
fitted: the parts make two sides, and passes of the second round are replays with constants that
were fitted to the other side. Does not predict or judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hicache.core.errors import CallerError
from sim.fitted.factors import Factor

from ..choosing import group, half_of
from ..rows import Row
from . import GROUPS, ROWS
from .fit import Progress, fitted_to
from .recording import Workers, recorded
from .response import with_response
from .samples import Sample

_SIDES = 2
STEPS = 1 + 3 * _SIDES


def crossed(
    rows: Sequence[Row],
    by: str,
    workers: Workers,
    progress: Progress = lambda step, done: None,
) -> dict[str, tuple[Factor, ...]]:
    """By id of a row, the factors that were fitted without it. In `rows` those of groups that have
    no row in the other half are not there. progress: called with the number of the step, of
    `STEPS`, and how much of it is done. Raises CallerError where nothing is left to fit."""
    part = {row.id: PARTS[by](row) for row in rows}
    samples = recorded(rows, (), workers, partial(progress, 0))
    parts = sorted({part[one.row] for one in samples})
    if len(parts) < 2:
        raise CallerError(
            f"--leave-out {by}: expected rows of at least two {_SAID[by]} that constants can be "
            f"fitted to, found {len(parts)}; name more measurements with --data"
        )
    fitted: dict[str, tuple[Factor, ...]] = {}
    for side in range(_SIDES):
        left = parts[side::_SIDES]
        told = [partial(progress, 1 + 3 * side + number) for number in range(3)]
        first = fitted_to([one for one in samples if part[one.row] not in left], (), told[0])
        # what one part is left out of needs no replay of it; several parts are in each other's fits
        needed = [row for row in rows if [part[row.id]] != left]
        again = with_response(samples, recorded(needed, first, workers, told[1]), first)
        kept = [([one for one in again if part[one.row] != each], first) for each in left]
        fitted |= zip(left, workers.done(_fitted, kept, told[2]), strict=True)
    known = {each: {one.group for one in samples if part[one.row] != each} for each in parts}
    return {
        row.id: fitted[part[row.id]]
        for row in rows
        if part[row.id] in fitted and (by == GROUPS or group(row) in known[part[row.id]])
    }


def _fitted(given: tuple[Sequence[Sample], tuple[Factor, ...]]) -> tuple[Factor, ...]:
    return fitted_to(*given)


PARTS: Mapping[str, Callable[[Row], str]] = {
    GROUPS: group,
    ROWS: lambda row: half_of(row.id),
}
_SAID = {GROUPS: "groups", ROWS: "halves"}
