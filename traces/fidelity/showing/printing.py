"""Prints the table of errors, the worst rows and what was left out, for people.

Does not count (see judging).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TextIO

from ...terminal.tables import console, percent, table
from ..choosing import HALVES, JUDGE
from ..figures import COPY, E2E, HITS, KERNEL, THROUGHPUT, TPOT, TTFT
from ..judging import (
    Pair,
    Summary,
    by_quantity,
    coverage,
    grouped,
    judged,
    left_out,
    not_judged,
    tails,
    worst,
)
from ..predicting import Compared, Outcome
from ..rules import FIGURE_RULES, RULES
from ..third_party import METRICS, by_length, scored

HEADINGS = ("figures", "median", "9 of 10", "bias", "<10 %", "<25 %")
QUANTITIES = {
    TTFT: "TTFT",
    TPOT: "TPOT",
    THROUGHPUT: "throughput",
    HITS: "hit rate",
    COPY: "copies",
    KERNEL: "kernels",
    E2E: "end to end",
}
TITLES = {
    "kinds": "By kind",
    "gpus": "By GPU",
    "models": "By model",
    "engines": "By engine and version",
    "parallelism": "By ranks",
    "precisions": "By precision of the weights",
    "limits": "By where the server's limits are known from",
}
_SHORT = ("kinds", "gpus", "models", "engines", "limits")


def print_table(outcomes: Sequence[Outcome], stream: TextIO, full: bool) -> None:
    """Both halves apart, of one time model. full: also by ranks and precision, and grade C."""
    out = console(stream)
    labels = sorted({outcome.label for outcome in outcomes if outcome.label})
    out.print(f"\nTimes: {outcomes[0].times} ({'; '.join(labels[:4])})" if outcomes else "\nNo row")
    for half in HALVES:
        _half(outcomes, half, stream, full)
    _rules(outcomes, stream)


def _half(outcomes: Sequence[Outcome], half: str, stream: TextIO, full: bool) -> None:
    out = console(stream)
    pairs = judged(outcomes, half)
    apart = judged(outcomes, half, ("C",)) if full else []
    if not pairs:
        out.print(f"\nThe half to {half}: no figure")
        return
    rows = len({outcome.id for outcome, _ in pairs})
    head = f"The half to {half}: {rows} rows of grades A and B"
    out.print(_summaries(head, {"all": by_quantity(pairs)}))
    for grouping, title in TITLES.items():
        if full or grouping in _SHORT:
            out.print(_summaries(f"{title} ({half})", grouped(pairs, grouping)))
    if ends := tails(outcomes, half):
        out.print(_tails(f"Tails, not in the figures above ({half})", ends))
    if half == JUDGE:
        out.print(_covered(outcomes))
    out.print(_worst(f"The largest errors ({half})", worst(pairs)))
    if apart:
        out.print(_summaries(f"Grade C, not judged ({half})", grouped(apart, "kinds")))


def _summaries(title: str, found: dict[str, dict[str, Summary]]) -> object:
    result = table(title, "", "quantity", *HEADINGS)
    result.columns[1].justify = "left"
    for column in result.columns[1:]:
        column.no_wrap = True
    for name, quantities in found.items():
        for place, (quantity, one) in enumerate(quantities.items()):
            result.add_row(name if place == 0 else "", *cells(quantity, one))
    return result


def _covered(outcomes: Sequence[Outcome]) -> object:
    result = table("Error bars (nine of ten within) made of other rows", "", "figures", "within")
    for name, counts in coverage(outcomes).items():
        if counts["figures"]:
            result.add_row(
                name, str(counts["figures"]), percent(counts["within"] / counts["figures"], 0)
            )
    return result


def _tails(title: str, found: dict[str, Summary]) -> object:
    result = table(title, "", *HEADINGS)
    for name, one in found.items():
        quantity, _, statistic = name.partition(" ")
        result.add_row(f"{QUANTITIES[quantity]} {statistic}", *cells(quantity, one)[1:])
    return result


def cells(quantity: str, one: Summary) -> tuple[str, ...]:
    """A row of a table: the quantity, then `HEADINGS`."""
    written = points if quantity == HITS else percent_of
    return (
        QUANTITIES[quantity],
        str(one.figures),
        written(one.median),
        written(one.nine_tenths),
        written(one.bias, signed=True),
        "-" if quantity == HITS else percent(one.within_10, 0),
        "-" if quantity == HITS else percent(one.within_25, 0),
    )


def percent_of(value: float, signed: bool = False) -> str:
    return f"{value * 100:{'+' if signed else ''}.1f} %"


def points(value: float, signed: bool = False) -> str:
    """A difference of rates, in points of a per cent."""
    return f"{value * 100:{'+' if signed else ''}.2f} pt"


def amount(figure: Compared, value: float) -> str:
    """A figure with its unit."""
    if figure.quantity == HITS:
        return f"{value * 100:.2f} %"
    if figure.quantity == THROUGHPUT:
        return f"{value:,.1f} /s"
    if figure.quantity == COPY:
        return f"{value / 1e9:.1f} GB/s"
    if figure.quantity == KERNEL:
        return f"{value * 1e6:,.1f} us"
    return f"{value * 1e3:,.2f} ms" if value < 10 else f"{value:,.2f} s"


def error_of(figure: Compared) -> str:
    return (points if figure.quantity == HITS else percent_of)(figure.error, signed=True)


def _worst(title: str, pairs: Sequence[Pair]) -> object:
    result = table(title, "row", "figure", "predicted", "published", "error")
    result.columns[1].justify = "left"
    for outcome, figure in pairs:
        shown = amount(figure, figure.predicted), amount(figure, figure.published)
        result.add_row(outcome.id, figure.name, *shown, error_of(figure))
    return result


def _rules(outcomes: Sequence[Outcome], stream: TextIO) -> None:
    out = console(stream)
    for title, counts, texts in (
        ("Rows left out, by rule", left_out(outcomes), RULES),
        ("Figures shown and not judged, by rule", not_judged(outcomes), FIGURE_RULES),
    ):
        if counts:
            result = table(title, "rule", "count", "what it says")
            result.columns[2].justify = "left"
            for rule, count in counts.items():
                result.add_row(rule, str(count), texts[rule])
            out.print(result)


def print_side_by_side(outcomes: Sequence[Outcome], stream: TextIO) -> None:
    """The time models beside each other, on the figures that all of them predict."""
    models = list(dict.fromkeys(outcome.times for outcome in outcomes))
    for half in HALVES:
        result = table(f"On the same figures ({half})", "quantity", "figures", *models)
        for quantity, summaries in beside(outcomes, half, models).items():
            shown = [f"{cells(quantity, one)[2]} / {cells(quantity, one)[3]}" for one in summaries]
            result.add_row(QUANTITIES[quantity], str(summaries[0].figures), *shown)
        console(stream).print(result)
    console(stream).print("Each: median / nine tenths of absolute errors.")


def beside(
    outcomes: Sequence[Outcome], half: str, models: Sequence[str]
) -> dict[str, list[Summary]]:
    """By quantity, the summary of each time model over the figures that all of them predict."""
    sides = [
        {
            (outcome.id, figure.name): (outcome, figure)
            for outcome, figure in judged([one for one in outcomes if one.times == model], half)
        }
        for model in models
    ]
    shared = set.intersection(*(set(side) for side in sides)) if sides else set()
    found = [by_quantity([side[key] for key in sorted(shared)]) for side in sides]
    return {name: [one[name] for one in found] for name in (found[0] if found else {})}


def print_third_party(outcomes: Sequence[Outcome], stream: TextIO) -> None:
    """Other simulators and this one on the cases of a third party."""
    title = [QUANTITIES.get(name, name.upper()) for name in METRICS]
    head = f"Median errors of means in %, {outcomes[0].times}" if outcomes else "No case"
    result = table(head, "simulator", "cases", *title, *(f"{name} here" for name in title))
    result.columns[0].no_wrap = True
    for one in scored(outcomes):
        both = (one.errors, one.here)
        shown = [f"{100 * errors[name]:.1f}" for errors in both for name in METRICS]
        result.add_row(one.simulator, str(one.cases), *shown)
    out = console(stream)
    out.print(result)
    out.print("Here: the errors of this project on the same cases.")
    if whole := [one for one in outcomes if one.figures]:
        out.print(
            "Against the time per token by the configured lengths, (end to end - TTFT) / "
            f"(length - 1), ITL is {percent_of(by_length(whole))} off: docs/fidelity.md"
        )
    _rules([replace(one, figures=()) for one in outcomes], stream)
