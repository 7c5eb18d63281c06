"""The tables of a report: of variants, and those that say the same as each chart.

Each stands in a box that scrolls sideways on a narrow screen. Does not draw; see figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .document import REQUESTS
from .figures import PARTS, WAYS, Variant, series_of
from .markup import Html, joined, tag
from .numbers import NONE, count, percent, seconds, short
from .words import NOT_JUDGED, load_of, load_told, policy_name, series_name, tail_judged

_MOST_ROWS = 20
PAPER_ROWS = 6  # of a table; page.css hides the others
_CURVE_ROWS = 16
_QUANTILES = (0, 10, 25, 50, 75, 90, 95, 99, 100)


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table whose first column names its rows."""
    head = tag("tr", *(tag("th", column, scope="col") for column in columns))
    body = joined(
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in cells))
        for first, *cells in rows
    )
    made = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body))
    return tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def variants(found: Sequence[Variant], best: str | None) -> Html:
    """The main figures of each variant."""
    timed = any(one["latency_s"] for one in found)
    goal = any(one["slo"] for one in found)
    stored = any(one["whole"]["hit_tokens"]["storage"] for one in found)
    columns = ["variant", "hit rate", "device", "host", *["storage"] * stored, "lost", "ceiling"]
    loads = [load_of(one) for one in found] if timed else []
    several = len(set(loads)) > 1
    if timed:
        columns += [*["load"] * several, "TTFT p50", *tails(found), "TPOT p50", "tokens/s"]
    columns += ["attained", "goodput"] * goal
    rows = [_variant(one, best, stored, timed, goal, several) for one in found]
    shown = table("Variants", columns, rows)
    return joined([tag("p", load_told(found)), shown]) if timed and not several else shown


def _variant(
    one: Variant, best: str | None, stored: bool, timed: bool, goal: bool, loads: bool
) -> Sequence[str]:
    whole, hits = one["whole"], one["whole"]["hit_tokens"]
    total = whole["input_tokens"] or 1
    name = joined([one["label"], tag("span", "best", class_="badge")], " ")
    cells: list[str] = [name if best == one["label"] else one["label"]]
    cells += [percent(whole["hit_rate"])]
    cells += [percent(hits[tier] / total) for tier in ("device", "host", *["storage"] * stored)]
    cells += [percent(whole["lost_tokens"] / total), percent(whole["ceiling_rate"])]
    if timed:
        times, output = one["latency_s"], one["output"]
        cells += [load_of(one)] * loads
        cells += [seconds(times["ttft"][key] if times else None) for key in ("p50", "p90", "p99")]
        cells += [seconds(times["tpot"]["p50"] if times else None)]
        cells += [count(output["tokens_per_s"] if output else None)]
    if goal:
        slo = one["slo"] or {}
        rate = slo.get("goodput_requests_per_s")
        cells += [
            percent(slo.get("attained_rate")),
            f"{count(rate)}/s" if rate is not None else NONE,
        ]
    return cells


def tails(
    found: Sequence[Variant], names: Sequence[str] = ("p90", "p99"), of: str = ""
) -> list[Html]:
    """Headings of columns with tails of the time to first token, marked until they are judged."""
    mark = joined([tag("br"), tag("small", NOT_JUDGED)])
    return [
        joined([of + name] if tail_judged(name, found) else [of + name, mark]) for name in names
    ]


def candidates(decision: Mapping[str, Any], found: Sequence[Variant]) -> Html:
    """Those that serve, the cheapest first, then those that do not, and the first of those that
    were not replayed, with the reason. found: the variants of the report."""
    answer, unit = decision["answer"], decision["prices"]["currency"]
    columns = [
        "candidate",
        f"cost {unit}/h".replace(" /", "/"),
        "TTFT p50",
        *tails(found, of="TTFT "),
    ]
    columns += ["keep the limits", "goodput", "goodput/cost", "why not"]
    tried = [one for one in decision["candidates"] if one["served"] is not None]
    tried.sort(key=lambda one: (not one["served"], one["cost_per_hour"], one != answer))
    others = [one for one in decision["candidates"] if one["served"] is None]
    rows = []
    for one in [*tried, *others[:_MOST_ROWS]]:
        chosen = answer is not None and one["label"] == answer["label"]
        name = joined([one["label"], tag("span", "cheapest that serves", class_="badge")], " ")
        good, value = one["goodput_requests_per_s"], one["goodput_per_cost"]
        dearer = answer is None or one["cost_per_hour"] > answer["cost_per_hour"]
        lost = "costs more" if dearer else "fewer keep the limits"
        why = one["why"] or ("" if chosen else lost if one["served"] else "misses too many")
        rows.append(
            [
                name if chosen else one["label"],
                f"{one['cost_per_hour']:,.2f}",
                *(seconds(one[f"ttft_{part}_s"]) for part in ("p50", "p90", "p99")),
                percent(one["attained_rate"]),
                NONE if good is None else f"{count(good)}/s",
                NONE if value is None else count(value),
                why,
            ]
        )
    rate = (decision["demand"] or {}).get("requests_per_s")
    load = f"{count(rate)} requests a second" if rate else "this load"
    said = (
        "Those that serve, the cheapest first, then those that do not. One without times was not "
        f"replayed, for the reason given. All times are at {load}."
    )
    cut = f"{{}} of {len(decision['candidates'])} candidates; --json has all."
    on_paper = cut.format(min(len(rows), PAPER_ROWS)) + " The HTML page has more."
    return joined(
        [
            tag("p", said),
            table("Candidates", columns, rows),
            tag("p", cut.format(len(rows)), class_="screen"),
            tag("p", on_paper, class_="paper"),
        ]
    )


def curve(document: Mapping[str, Any]) -> Html:
    sizes, in_bytes = document["capacities_tokens"], document.get("capacities_bytes")
    last = len(sizes) - 1
    places = sorted({at * last // (_CURVE_ROWS - 1) for at in range(_CURVE_ROWS)} if sizes else ())
    columns = ["capacity (tokens)", *["bytes"] * bool(in_bytes)]
    columns += [policy_name(name) for name in document["policies"]]
    rows = [
        [
            f"{sizes[at]:,}",
            *([short(in_bytes[at], "B")] if in_bytes else []),
            *(percent(one["hit_rates"][at]) for one in document["policies"].values()),
        ]
        for at in places
    ]
    return table("Hit rate against capacity", columns, rows)


def tokens(found: Sequence[Variant]) -> Html:
    names = [
        name
        for name in series_of(found)
        if any(any(one["timeline"]["series"].get(name, ())) for one in found)
    ]
    rows = []
    for variant in found:
        series, total = variant["timeline"]["series"], variant["whole"]["input_tokens"]
        sums = [sum(series.get(name, ())) for name in names]
        shares = [f"{one:,} ({percent(one / (total or 1))})" for one in sums]
        rows.append([variant["label"], f"{total:,}", *shares])
    return table("Prompt tokens by source", ["variant", "all", *map(series_name, names)], rows)


def timeline(one: Variant) -> Html:
    """Tenths of the axis, in tokens."""
    found = one["timeline"]
    names = [name for name in series_of([one]) if any(found["series"].get(name, ()))]
    longest = max((len(found["series"][name]) for name in names), default=0)
    step = max(1, -(-longest // 10))
    rows = []
    for first in range(0, longest, step):
        last = min(longest, first + step)
        ends = [at * found["bucket"] for at in (first, last)]
        unit = "" if found["axis"] == REQUESTS else " s"
        cells = [f"{sum(found['series'][name][first:last]):,}" for name in names]
        rows.append([f"{ends[0]:,.6g} to {ends[1]:,.6g}{unit}", *cells])
    axis = "requests" if found["axis"] == REQUESTS else "time"
    caption = f"Prompt tokens over time: {one['label']}"
    return table(caption, [axis, *map(series_name, names)], rows)


def first_tokens(found: Sequence[Variant]) -> Html:
    middle = [f"p{at}" for at in _QUANTILES if 0 < at < 90]
    columns = ["variant", "least", *middle, *tails(found, ("p90", "p95", "p99")), "largest"]
    rows = [
        [one["label"], *(seconds(one["ttft_quantiles_s"][at]) for at in _QUANTILES)]
        for one in found
        if one["ttft_quantiles_s"]
    ]
    return table("Time to first token", columns, rows)


def parts(found: Sequence[Variant]) -> Html:
    rows = [
        [
            one["label"],
            *(seconds(one["latency_s"][key]["mean"]) for key, _ in PARTS),
            seconds(one["latency_s"]["ttft"]["mean"]),
        ]
        for one in found
        if one["latency_s"]
    ]
    columns = ["variant", *(name for _, name in PARTS), "time to first token"]
    return table("Mean time to first token", columns, rows)


def moved(found: Sequence[Variant]) -> Html:
    """What each way moved in all, and in its busiest bucket."""
    rows = []
    for one in found:
        for key, name in WAYS.items():
            sums = (one["moved"] or {}).get(key) or ()
            if any(sums):
                most = max(sums) / one["moved"]["bucket_s"]
                cells = [short(sum(sums), "B"), f"{short(most, 'B')}/s"]
                rows.append([f"{one['label']}: {name}", *cells])
    return table("Transfers, all ranks", ["way", "in all", "most in one bucket"], rows)


def prefixes(document: Mapping[str, Any]) -> Html:
    edges = sorted(document["edges"], key=lambda edge: (-edge["reusable_tokens"], edge["id"]))
    columns = ["first in request", "depth of its end", "tokens", "requests", "reusable", "hit"]
    rows = [
        [
            f"{edge['first_request']:,}",
            f"{edge['end_tokens']:,}",
            f"{edge['tokens']:,}",
            f"{edge['requests']:,}",
            f"{edge['reusable_tokens']:,}",
            NONE
            if edge["hit_tokens"] is None or not edge["reusable_tokens"]
            else percent(edge["hit_tokens"] / edge["reusable_tokens"]),
        ]
        for edge in edges[:_MOST_ROWS]
    ]
    return table("Hot prefixes: the edges that save most, in tokens", columns, rows)
