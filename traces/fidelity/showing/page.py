"""The HTML page: a chart of each quantity, the tables of both halves, every row, and the rules.

Does not write files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...html import tables
from ...html.figures import layout
from ...html.markup import Html, tag
from ...html.render import render_charts
from ...html.sections import Page
from ..choosing import HALVES
from ..figures import HITS
from ..judging import Pair, by_quantity, grouped, judged, left_out, not_judged, worst
from ..predicting import Outcome
from ..rules import FIGURE_RULES, RULES
from .picture import PANELS
from .printing import HEADINGS, TITLES, amount, cells, error_of

_SYMBOLS = {"fit": "square-open", "judge": "circle"}
_COLOURS = {"fit": "@host", "judge": "@device"}
_BANDS = (1.0, 1.1, 0.9, 1.25, 0.75)


def page(outcomes: Sequence[Outcome], title: str, told: str, document: Mapping[str, Any]) -> str:
    """The text of the file. document: what --json has."""
    shown = Page()
    body = [_charts(outcomes, shown)]
    body += [_half(outcomes, half) for half in HALVES]
    body += [_rows(outcomes), _rules(outcomes)]
    return render_charts(title, told, body, shown, document)


def _section(name: str, title: str, *children: Html) -> Html:
    return tag("section", tag("h2", title, id=name), *children, aria_labelledby=name)


def _charts(outcomes: Sequence[Outcome], shown: Page) -> Html:
    pairs = {half: judged(outcomes, half) for half in HALVES}
    found = []
    for quantity, (name, unit, factor) in PANELS.items():
        mine = {
            half: [pair for pair in pairs[half] if pair[1].quantity == quantity] for half in HALVES
        }
        if any(mine.values()):
            bands = _BANDS[:1] if quantity == HITS else _BANDS
            said = "Each mark is a published figure; the line is no error."
            if len(bands) > 1:
                said = "Each mark is a published figure; lines are no error, 10 % and 25 %."
            rows = [_row(pair) for half in HALVES for pair in worst(mine[half])]
            below = tables.table(f"{name}: the largest errors", _COLUMNS, rows)
            chart = _chart(mine, unit, factor, bands)
            found.append(shown.figure(f"chart-{quantity}", name, said, chart, below))
    return _section("verdict", "Predicted against published", *found)


def _chart(
    mine: Mapping[str, Sequence[Pair]], unit: str, factor: float, bands: Sequence[float]
) -> dict[str, Any]:
    """bands: factors of the lines; a chart with one alone has linear axes."""
    values = [
        value * factor
        for pairs in mine.values()
        for _, one in pairs
        for value in (one.published, one.predicted)
        if value > 0
    ] or [1.0]
    ends = [min(values), max(values)]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": ends,
            "y": [end * band for end in ends],
            "line": {"color": "@queue", "width": 2 if band == 1.0 else 1},
            "hoverinfo": "skip",
            "showlegend": False,
        }
        for band in bands
    ]
    for half, pairs in mine.items():
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": half,
                "x": [one.published * factor for _, one in pairs],
                "y": [one.predicted * factor for _, one in pairs],
                "text": [f"{outcome.id}: {error_of(one)}" for outcome, one in pairs],
                "marker": {"color": _COLOURS[half], "symbol": _SYMBOLS[half], "size": 6},
            }
        )
    made = layout(f"published ({unit})", f"predicted ({unit})", 460)
    made["xaxis"]["type"] = made["yaxis"]["type"] = "log" if len(bands) > 1 else "linear"
    return {"data": traces, "layout": made}


_COLUMNS = ("row", "half", "grade", "figure", "predicted", "published", "error", "not judged by")


def _row(pair: Pair) -> tuple[str, ...]:
    outcome, one = pair
    return (
        outcome.id,
        outcome.half,
        outcome.grade,
        one.name,
        amount(one, one.predicted),
        amount(one, one.published),
        error_of(one),
        one.rule,
    )


def _half(outcomes: Sequence[Outcome], half: str) -> Html:
    pairs = judged(outcomes, half)
    columns = ("", "quantity", *HEADINGS)
    made = [
        tables.table(
            "All", columns, [("all", *cells(name, one)) for name, one in by_quantity(pairs).items()]
        )
    ]
    for grouping, title in TITLES.items():
        rows = [
            (key, *cells(name, one))
            for key, found in grouped(pairs, grouping).items()
            for name, one in found.items()
        ]
        made.append(tables.table(f"{title} ({half})", columns, rows))
    return _section(f"half-{half}", f"The half to {half}", *made)


def _rows(outcomes: Sequence[Outcome]) -> Html:
    rows = [_row((outcome, one)) for outcome in outcomes for one in outcome.figures]
    made = tables.table("Every published figure", _COLUMNS, rows)
    return _section("rows", "Every row", tag("details", tag("summary", "Show all rows"), made))


def _rules(outcomes: Sequence[Outcome]) -> Html:
    made = [
        tables.table(title, ("rule", "count", "what it says"), rows)
        for title, rows in (
            (
                "Rows left out",
                [(rule, str(count), RULES[rule]) for rule, count in left_out(outcomes).items()],
            ),
            (
                "Figures that are not judged",
                [
                    (rule, str(count), FIGURE_RULES[rule])
                    for rule, count in not_judged(outcomes).items()
                ],
            ),
        )
    ]
    return _section("rules", "What is not judged, and why", *made)
