"""Fits the constants of the roofline and of the engine profiles to published measurements (`fit`:
all rows; `crossed`: all but rows that are left out in turn). `recording` replays rows and gives
`samples` (their passes, and the work in each), `response` compares two recordings, a `table`
predicts all samples under changed `parameters`, and `solving` finds these. They are loaded when
somebody asks for a fit, since they need scipy, an extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hicache import registry
from sim.fitted.factors import Factor

from ...terminal.options import not_installed
from ...terminal.progress import progress
from ..rows import Row

_ROOM = "traces.fidelity.fitting"
GROUPS, ROWS = "groups", "rows"  # what is left out, see crossed


def fitted_text(
    rows: Sequence[Row], executor: str, jobs: int
) -> tuple[str, list[tuple[str, str, float]]]:
    """The file of constants that these rows give, and those that are held at a peak (see
    fit.Fitted). jobs: worker processes, 0 for one on each core. Raises CallerError without
    scipy."""
    fitting = _loaded("fit", "--fit")
    with _told(fitting.PARTS) as tell:
        found = fitting.fit(rows, fitting.Workers(executor, jobs), tell)
    return fitting.text_of(found.factors), found.beyond


def factors_without(
    rows: Sequence[Row], by: str, executor: str, jobs: int
) -> dict[str, tuple[Factor, ...]]:
    """By id of a row, factors that were fitted without it: see crossed. Raises CallerError."""
    crossing = _loaded("crossed", "--leave-out")
    with _told(crossing.STEPS) as tell:
        workers = crossing.Workers(executor, jobs)
        found: dict[str, tuple[Factor, ...]] = crossing.crossed(rows, by, workers, tell)
    return found


def _loaded(name: str, flag: str) -> Any:
    try:
        return registry.load(_ROOM, name)
    except ModuleNotFoundError as error:
        raise not_installed(flag, "fit", error) from None


@contextmanager
def _told(steps: int) -> Iterator[Callable[[int, float], None]]:
    """Progress over steps, each of which says how much of it is done."""
    with progress("fit", 100, "%") as shown:

        def tell(step: int, done: float) -> None:
            shown(int(100 * (step + done) / steps))

        yield tell
