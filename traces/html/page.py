"""The page of a report, from its document alone: the same document gives the same bytes.

Here is what its charts show. page.html.jinja has its text and tables and escapes whatever it shows,
page.js and page.css have its looks. The file has everything in it, also plotly (as published and
packed, see PLOTLY) and the document. Its policy (CSP) lets a browser load nothing and run only the
two scripts in it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from ..expected.table import together
from ..results.record import QUANTILES, Prefix, Variant, record_of
from ..terminal.streams import visible
from .document import (
    FIRST_SEEN,
    LOST,
    REQUESTS,
    TIERS,
    Candidate,
    Curve,
    Decision,
    Report,
)

Chart: TypeAlias = dict[str, Any]

NONE = "-"
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
WAYS = {
    "d2h_bytes": "device to host",
    "h2d_bytes": "host to device",
    "storage_read_bytes": "storage to host",
    "storage_written_bytes": "host to storage",
}
PARTS = {"queue": "queue", "load": "load from host", "compute": "compute"}
_POLICIES = {"optimum": "optimum (Belady)", "bound": "bound of any policy"}
_MOST_WAITING = 20  # candidates without a replay
_MOST_POINTS = 400  # of one line
_TREE_LEVELS = 8
_UNJUDGED = ("p90", "p95", "p99")  # of no published run
_LABEL = 24  # characters of a line beside a bar
_PATTERNS = ("/", "x", "\\", "-", "+", "|", ".")
# Of reasons of loss; others have lost1 and differ by their patterns.
_LOST_COLOURS = {"evicted": "lost0", "evicted_or_not_ready": "lost0", "not_ready": "lost2"}


def render(given: Mapping[str, Any]) -> str:
    """The text of the file. given: a document of `document.report` or `checked`."""
    report = record_of(Report, given, "report")
    variants, decision, trace = report.variants, report.decision, report.trace
    timed = [one for one in variants if one.ttft_quantiles_s]
    charts, choices = _charts(report, timed), _choices(variants)
    best = report.verdict.best if report.verdict else None
    first = next((place for place, one in enumerate(variants) if one.label == best), 0)
    models = [str(one.config.get("model") or "") for one in variants]
    plotly, own = _bytes("plotly-basic.min.js.gz"), _bytes("page.js")
    size = f"{trace.requests:,} requests, {trace.input_tokens:,} prompt tokens"
    return _rendered(
        given,
        document=report,
        title=report.title,
        line=f"{size}; hicache {report.hicache_version}",
        size=size,
        charts={"charts": charts, "choices": choices, "first": first},
        shown=[*charts, *choices],
        scripts=[_allowed(gzip.decompress(plotly)), _allowed(own)],
        plotly=base64.b64encode(plotly).decode(),
        script=own.decode(),
        timed=timed,
        loads=list(dict.fromkeys(map(_load_of, variants))),
        models=list(filter(None, dict.fromkeys(models))),
        unjudged=_UNJUDGED,
        errors=[] if decision else together(one.expected_error for one in variants),
        candidates=_candidates(decision) if decision else [],
        gains=_gains(report.curve) if report.curve else [],
    )


def render_comparison(given: object, **values: Any) -> str:
    """A page of tables, without scripts. values: `title`; `line` below; `warnings`; `lines`;
    `tables`: caption, columns and rows of each."""
    return _rendered(given, scripts=[], **values)


def _rendered(given: object, **values: Any) -> str:
    environment = import_module("jinja2").Environment(  # here: most commands make no page
        autoescape=True, finalize=_shown, trim_blocks=True, lstrip_blocks=True
    )
    compact = {"ensure_ascii": True, "separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_kwargs"] = compact
    for function in (percent, seconds, count, short, policy_name, series_name):
        environment.filters[function.__name__] = function
    shared = {"WAYS": WAYS, "PARTS": PARTS, "series_of": _looks, "load_of": _load_of}
    environment.globals |= shared
    css, template = (_bytes(name).decode() for name in ("page.css", "page.html.jinja"))
    text: str = environment.from_string(template).render(given=given, css=css, **values)
    return text


def _shown(value: Any) -> Any:
    """Unsafe characters are shown as escapes, as on a terminal."""
    return visible(value) if type(value) is str else value


def _bytes(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


def _allowed(script: bytes) -> str:
    """How the page's policy allows a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"


# -- figures in words; what is missing is a dash


def percent(rate: float | None, places: int = 1) -> str:
    return f"{rate * 100:.{places}f} %" if isinstance(rate, int | float) else NONE


def seconds(time_s: float | None) -> str:
    if not isinstance(time_s, int | float):
        return NONE
    if abs(time_s) < 1:
        return f"{time_s * 1e3:,.3g} ms" if time_s else "0 s"
    return f"{time_s:,.3g} s" if abs(time_s) < 100 else f"{time_s:,.0f} s"


def count(value: float | None) -> str:
    if not isinstance(value, int | float):
        return NONE
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.3g}"


def short(value: float | None, unit: str = "") -> str:
    """Three digits and a decimal prefix: `1.23 M`, `512 GB`."""
    if not isinstance(value, int | float):
        return NONE
    for factor, prefix in _UNITS:
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def chart_text(text: str, most: int = 60) -> str:
    """Text for a label of a chart, where plotly reads tags and entities; the middle is left out."""
    line = visible(text).replace("\n", " ")
    if len(line) > most:
        line = f"{line[: most * 2 // 3]}...{line[len(line) - most // 4 :]}"
    return html.escape(line, quote=False)


def reason_name(reason: str) -> str:
    return "still being computed" if reason == "not_ready" else reason.replace("_", " ")


def policy_name(name: str) -> str:
    plain = name in ("lru", "fifo", "lfu", "s3-fifo", "s3_fifo", "sieve", "slru")
    return name.upper().replace("_", "-") if plain else _POLICIES.get(name, name)


def series_name(name: str) -> str:
    if name.startswith(LOST):
        return f"lost: {reason_name(name[len(LOST) :])}"
    return "first seen" if name == FIRST_SEEN else f"{name} hits"


def _reasons(variants: Sequence[Variant]) -> list[str]:
    """Every reason of loss, the largest first."""
    found: Counter[str] = Counter()
    for variant in variants:
        found.update(variant.lost_by_reason)
    return sorted(found, key=lambda reason: (-found[reason], reason))


def _load_of(variant: Variant) -> str:
    """The load that was played: requests a second, and how it was made of the trace."""

    def plain(value: object) -> str:
        return f"{value:.3g}" if isinstance(value, int | float) else str(value)

    config = variant.config
    load = f"{plain(config.get('speed') or 1)} x the trace"
    if config.get("concurrency"):
        load = f"{plain(config['concurrency'])} at once"
    elif config.get("closed_loop"):
        load = "closed loop"
    elif config.get("request_rate"):
        load = f"{plain(config['request_rate'])} requests/s"
    sessions = config.get("scale_sessions") or 1
    return load if sessions == 1 else f"{load}, {plain(sessions)} x its sessions"


def _candidates(decision: Decision) -> list[Candidate]:
    """Those that serve, the cheapest first, then those that do not, and the first of those that
    were not replayed."""
    answer, found = decision.answer, decision.candidates
    tried = [one for one in found if one.served is not None]
    tried.sort(key=lambda one: (not one.served, one.cost_per_hour, one != answer))
    return [*tried, *[one for one in found if one.served is None][:_MOST_WAITING]]


def _gains(curve: Curve) -> list[tuple[str, float]]:
    """What more memory, a store or another policy can add at most, where it is known."""
    total, ceiling, tiers = curve.input_tokens, curve.unbounded_hit_tokens, curve.tiers
    if not total or ceiling is None:
        return []
    rows = [("any cache, however large: hits at most", ceiling / total)]
    if not tiers or not tiers.inclusive.device_hit_tokens:
        return rows
    hits = tiers.inclusive.device_hit_tokens[0]
    rows.append(("the (smallest) device memory alone: hits", hits / total))
    rows.append(("host memory and storage: add at most", (ceiling - hits) / total))
    if {"optimum", "lru"} <= curve.policies.keys():
        best, lru = (curve.policies[name].hit_rates for name in ("optimum", "lru"))
        rates = zip(curve.capacities_tokens, best, lru, strict=False)
        least = tiers.device_pages * (curve.page_size or 1)
        if added := [one - other for size, one, other in rates if size >= least]:
            rows.append(("another eviction policy than LRU: adds at most", max(added)))
    return rows


# -- what the charts show; page.js has their looks


def _charts(report: Report, timed: Sequence[Variant]) -> dict[str, Chart]:
    """The charts that the report has something for, by the id of their place."""
    variants, curve, prefixes = report.variants, report.curve, report.prefixes
    found = {}
    if curve and any(any(one.hit_rates) for one in curve.policies.values()):
        found["curve"] = _curve(curve)
    if variants:
        found["tokens"] = _tokens(variants)
    if any(one.latency_s and one.latency_s.ttft.mean for one in timed):
        limit = report.slo.ttft_s if report.slo else None
        found |= {"cdf": _first_tokens(timed, limit), "parts": _parts(timed)}
    if prefixes and prefixes.edges:
        found["tree"] = _tree(prefixes.edges)
    return found


def _choices(variants: Sequence[Variant]) -> dict[str, list[Chart]]:
    """Charts of which the page shows that of the chosen variant."""
    found = {"timeline": [_timeline(one) for one in variants]} if variants else {}
    if any(any(getattr(one.moved, way)) for one in variants if one.moved for way in WAYS):
        found["moved"] = [_moved(one) for one in variants]
    return found


def _looks(variants: Sequence[Variant]) -> dict[str, Chart]:
    """By series of tokens that any of the variants has, from the bottom of the stack: its name and
    colour. Tiers and first seen are plain, each reason of loss has a pattern."""
    looks: dict[str, Chart] = {one: {"colour": one} for one in TIERS}
    for place, reason in enumerate(_reasons(variants)):
        pattern = _PATTERNS[place % len(_PATTERNS)]
        looks[LOST + reason] = {"colour": _LOST_COLOURS.get(reason, "lost1"), "pattern": pattern}
    looks[FIRST_SEEN] = {"colour": FIRST_SEEN}
    series = [one.timeline.series for one in variants]
    return {
        name: look | {"name": chart_text(series_name(name))}
        for name, look in looks.items()
        if any(any(one.get(name, ())) for one in series)
    }


def _labels(variants: Sequence[Variant]) -> list[str]:
    """Labels beside bars; a long one has two lines."""
    found = []
    for label in (one.label for one in variants):
        cut = len(label) if len(label) <= _LABEL else max(0, label.rfind(" ", 0, _LABEL)) or _LABEL
        lines = (chart_text(part, _LABEL) for part in (label[:cut], label[cut:].strip()) if part)
        found.append("<br>".join(lines))
    return found


def _curve(curve: Curve) -> Chart:
    """Hit rate against capacity, a line for each policy."""
    tokens, in_bytes = curve.capacities_tokens, curve.capacities_bytes
    unit, scale = ("GB", 1e9) if in_bytes else ("tokens", 1)
    last = len(tokens) - 1
    places = sorted({at * last // (_MOST_POINTS - 1) for at in range(_MOST_POINTS)})
    lines = [
        {
            "name": chart_text(policy_name(name)),
            "x": [(in_bytes or tokens)[at] / scale for at in places],
            "y": [round(one.hit_rates[at], 5) for at in places],
            "dash": {"optimum": "dash", "bound": "dot"}.get(name, "solid"),
        }
        for name, one in curve.policies.items()
    ]
    chart = {"lines": lines, "x": f"capacity ({unit}, logarithmic)", "y": "prompt tokens that hit"}
    per_token = in_bytes[-1] / (tokens[-1] or 1) if in_bytes else 1
    working = (curve.working_set_tokens or 0) * per_token / scale
    return chart | {"unit": unit, "mark": ["working set", working] if working else None}


def _tokens(variants: Sequence[Variant]) -> Chart:
    """A bar for each variant: where its prompt tokens came from."""
    bars = []
    for name, look in _looks(variants).items():
        sums = [sum(one.timeline.series.get(name, ())) for one in variants]
        totals = [max(1, one.whole.input_tokens) for one in variants]
        shares = [round(one / total, 5) for one, total in zip(sums, totals, strict=True)]
        bars.append(look | {"x": shares, "text": [f"{short(one)} tokens" for one in sums]})
    chart = {"beside": bars, "labels": _labels(variants), "rate": True}
    return chart | {"x": "share of prompt tokens"}


def _parts(timed: Sequence[Variant]) -> Chart:
    """Of what the mean time to first token consists, a bar for each variant."""
    bars = []
    for key, name in PARTS.items():
        times = [getattr(one.latency_s, key).mean for one in timed]
        bar = {"name": name, "colour": key, "pattern": "/" if key == "load" else ""}
        bars.append(bar | {"x": times, "text": [seconds(time) for time in times]})
    return {"beside": bars, "labels": _labels(timed), "x": "mean time to first token (s)"}


def _timeline(variant: Variant) -> Chart:
    """Stacked prompt tokens of each bucket of time."""
    timeline = variant.timeline
    bucket, by_request = timeline.bucket, timeline.axis == REQUESTS
    width = f"{count(bucket)} requests" if by_request else seconds(bucket)
    bars = [look | {"y": timeline.series[name]} for name, look in _looks([variant]).items()]
    axis = "request" if by_request else "time of admission (s)"
    return {"stacked": bars, "bucket": bucket, "x": axis, "y": f"prompt tokens in {width}"}


def _first_tokens(timed: Sequence[Variant], limit_s: float | None) -> Chart:
    """The distribution of the time to first token, a line for each variant."""
    shares = [place / (QUANTILES - 1) for place in range(QUANTILES)]
    lines = []
    for one in timed:
        times = [max(time, 1e-6) for time in one.ttft_quantiles_s or ()]
        lines.append({"name": chart_text(one.label, 36), "x": times, "y": shares})
    chart = {"lines": lines, "x": "time to first token (s, logarithmic)", "y": "share of requests"}
    mark = [f"SLO: {seconds(limit_s)}", limit_s] if limit_s else None
    return chart | {"unit": "s", "mark": mark}


def _moved(variant: Variant) -> Chart:
    """Bytes per second of each way between the tiers."""
    moved, lines = variant.moved, []
    for key, name in WAYS.items():
        counts: Sequence[int] = getattr(moved, key, ())
        if moved and any(counts):
            rates = [float(f"{one / moved.bucket_s / 1e9:.5g}") for one in counts]
            lines.append({"name": name, "y": rates})
    chart = {"steps": lines, "bucket": moved.bucket_s if moved else None}
    return chart | {"x": "time (s)", "y": "GB/s, all ranks"}


def _tree(edges: Sequence[Prefix]) -> Chart:
    """The tree of hot prefixes, its root above: an area is what is reusable of a prefix and of what
    continues it, a class what was hit of it."""
    areas = [edge.reusable_tokens for edge in edges]
    for edge in reversed(edges):  # each stands behind its parent
        if edge.parent >= 0:
            areas[edge.parent] += areas[edge.id]
    ends, depths = {-1: 0}, {-1: -1}  # ends: where the next one of its children begins
    known = all(edge.hit_tokens is not None for edge in edges)
    areas_of: list[Chart] = []
    for edge, area in zip(edges, areas, strict=True):
        number, above = edge.id, edge.parent
        depths[number], ends[number] = depths[above] + 1, ends[above]
        ends[above] += area
        share = (edge.hit_tokens or 0) / (edge.reusable_tokens or 1)
        label = f"{edge.requests:,} requests<br>{short(edge.tokens)} tokens"
        more = f"{label}<br>to token {edge.end_tokens:,}; reusable {short(edge.reusable_tokens)}"
        more += f"; first in request {edge.first_request}"
        more += f"; hit {percent(share)}" if known else ""
        one = {"begin": ends[number], "size": area, "depth": depths[number], "label": label}
        if depths[number] < _TREE_LEVELS:
            areas_of.append(one | {"more": more, "hit": share if known else None})
    return {"areas": areas_of, "whole": ends[-1] or 1, "x": "reusable prompt tokens"}
