"""Fits the constants of the roofline and of the engine profiles to the fit half of the published
measurements (`fit`): its rows become `samples` (the passes of a replay, and the work in each), a
`table` predicts all of them under changed `parameters`, and `solving` finds these. They are loaded
when somebody asks for a fit, since they need scipy, an extra.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache import registry

from ...terminal.options import not_installed
from ...terminal.progress import progress
from ..rows import Row

_ROOM = "traces.fidelity.fitting"
_PARTS = 4  # two rounds of replays and of constants
_HUNDREDTHS = 100


def fitted_text(rows: Sequence[Row]) -> str:
    """The file of constants that the fit half of these rows gives. Raises CallerError without
    scipy."""
    try:
        fitting = registry.load(_ROOM, "fit")
    except ModuleNotFoundError as error:
        raise not_installed("--fit", "fit", error) from None
    seen: dict[str, None] = {}
    with progress("fitted", _PARTS * _HUNDREDTHS, "hundredths of a part") as shown:

        def tell(what: str, part: float) -> None:
            seen[what] = None
            shown(_HUNDREDTHS * (len(seen) - 1) + int(_HUNDREDTHS * part))

        found = fitting.fit(rows, tell)
    text: str = fitting.text_of(found.factors)
    return text
