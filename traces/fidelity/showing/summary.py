"""The errors of the judged half as the table from which reports say what to expect.

See traces/expected for its form. Does not predict or judge.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...expected.table import METRICS, Judged, precision, summary
from ..judging import judged
from ..predicting import Outcome
from ..split import JUDGE


def summary_of(outcomes: Iterable[Outcome]) -> str:
    """The text of the table: every judged figure of a server, with each time model."""
    return summary(
        Judged(
            times=outcome.times,
            hardware=outcome.hardware.replace("_", "-"),
            model=outcome.model,
            ranks=outcome.ranks,
            precision=precision(outcome.precision),
            at_once=outcome.at_once,
            metric=figure.quantity,
            error=figure.error,
            engine=outcome.engine,
        )
        for outcome, figure in judged(outcomes, JUDGE)
        if outcome.ranks and figure.quantity in METRICS
    )
