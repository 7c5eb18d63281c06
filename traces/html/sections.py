"""The sections of a report, in the order of the page: verdict, variants, charts, what it all means.
A report on a purchase begins with the answer instead, and prints on two pages (see page.css).

Each chart stands in a figure with a heading, a sentence for readers who do not see it, and a table
that says the same. Does not make the file; see render.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..expected.words import together
from . import figures, tables
from .figures import Figure
from .markup import Html, joined, tag
from .numbers import count, percent, seconds, short
from .words import NOT_JUDGED, definitions, load_told, policy_name, tail_judged

Document = Mapping[str, Any]


@dataclass(slots=True)
class Page:
    """What the sections add to the page. charts: by id of their place. choices: by id, one figure
    for each variant, of which the page shows the chosen one."""

    charts: dict[str, Figure] = field(default_factory=dict)
    choices: dict[str, list[Figure]] = field(default_factory=dict)
    first: int = 0

    def figure(self, name: str, title: str, said: str, shown: Figure, below: Html) -> Html:
        self.charts[name] = shown
        return _figure(name, title, said, shown["layout"]["height"], below)

    def chosen(self, name: str, title: str, said: str, shown: list[Figure], below: Html) -> Html:
        self.choices[name] = shown
        return _figure(name, title, said, shown[0]["layout"]["height"], below)


def _figure(name: str, title: str, said: str, height: int, below: Html) -> Html:
    return tag(
        "figure",
        tag("figcaption", tag("h3", title), tag("p", said, id=f"{name}-said")),
        tag(
            "div",
            id=name,
            class_="chart",
            role="img",
            aria_label=title,
            aria_describedby=f"{name}-said",
            style=f"min-height:{height}px",
        ),
        tag("details", tag("summary", "The same as a table"), below),
        id=f"{name}-figure",
    )


def _section(name: str, title: str, *children: str) -> Html:
    return tag("section", tag("h2", title, id=name), *children, aria_labelledby=name)


def sections(document: Document, page: Page) -> list[Html]:
    """All sections that the document has something for."""
    decision = document.get("decision")
    told = decision and decision["in_words"]
    found = [_answer(document, told) if told else _verdict(document)]
    variants = document["variants"]
    if decision:
        found.append(_section("candidates", "Candidates", tables.candidates(decision, variants)))
    if variants:
        best = (document["verdict"] or {}).get("best")
        found.append(_section("variants", "Variants", tables.variants(variants, best)))
    if document["curve"]:
        found.append(_curve(document, page))
    if variants:
        found += [_tokens(document, page), *_times(document, page)]
        found += _over_time(variants, page)
    if document["prefixes"]:
        found.append(_prefixes(document["prefixes"], page))
    found += [_definitions(document), _made(document)]
    return [tag("div", *found, class_="purchase")] if told else found


_CARDS = {
    "load": "For this load",
    "cost": "What it costs",
    "sure": "How sure that is",
    "next": "What to do next",
}


def _answer(document: Document, told: Document) -> Html:
    """What to buy, for which load, for what money, how sure that is, and what to do next."""
    heading, *texts = told["answer"]
    first = [tag("p", heading, class_="answer"), *(tag("p", text) for text in texts)]
    cards = []
    for name, title in _CARDS.items():
        shown = list(told[name])
        head = f"{title}: {shown.pop(0).lower()}" if name == "sure" else title
        if name == "load":
            shown = [*_model(document), *shown, "Every time in this report is at this load."]
        if name == "sure":
            shown += _errors(document["variants"])
        items = (tag("p", text) for text in shown)
        cards.append(tag("div", tag("h3", head), *items, class_=f"card {name}"))
    parts = [tag("div", *first, class_="lead-card"), tag("div", *cards, class_="cards")]
    parts += [tag("p", f"Warning: {one}", class_="warning") for one in document["warnings"]]
    cannot = _cannot(document)
    if cannot:
        parts += [tag("h3", "What hardly helps"), tag("ul", *(tag("li", one) for one in cannot))]
    return _section("verdict", "Verdict", *parts)


def _errors(variants: Sequence[Document]) -> list[str]:
    """The error to expect of the times of the answer, and what nobody has judged."""
    told = []
    for one in variants[:1]:
        found = one["expected_error"] or {}
        known = {
            name: error["median"]
            for name, text in (("TTFT", "ttft"), ("TPOT", "tpot"))
            if (error := found.get(text) or {}).get("median") is not None
        }
        if known:
            errors = " and ".join(f"{name} {percent(error, 0)}" for name, error in known.items())
            told.append(
                f"Judged by published runs on {one['config'].get('hardware')}: {errors} off, in "
                "the median."
            )
    tails = [name for name in ("p90", "p99") if not tail_judged(name, variants)]
    if variants and tails:
        told.append(f"{' and '.join(tails)} are {NOT_JUDGED}: no published run to compare with.")
    return told


def _model(document: Document) -> list[str]:
    configs = [one["config"] for one in document["variants"]]
    models = dict.fromkeys(str(one["model"]) for one in configs if one.get("model"))
    return [f"Model: {', '.join(models)}."] if models else []


def _verdict(document: Document) -> Html:
    verdict = document["verdict"] or {}
    parts = [tag("p", sentence, class_="lead") for sentence in verdict.get("sentences", ())]
    if not document["complete"]:
        parts.insert(0, tag("p", "Incomplete: the run was interrupted.", class_="warning"))
    if not parts:
        parts.append(tag("p", "This report draws no conclusion; its figures follow."))
    parts += [tag("p", f"Warning: {one}", class_="warning") for one in document["warnings"]]
    return _section("verdict", "Verdict", *parts)


def _curve(document: Document, page: Page) -> Html:
    curve = document["curve"]
    if not any(any(one["hit_rates"]) for one in curve["policies"].values()):
        text = "No prompt begins like an earlier one, so no capacity would hit anything."
        return _section("capacity", "What capacity would hit", tag("p", text))
    cannot = [] if document["decision"] else _cannot(document)  # it stands above
    said = " ".join([_curve_said(curve), *cannot])
    shown = page.figure(
        "curve", "Hit rate against capacity", said, figures.curve(curve), tables.curve(curve)
    )
    return _section("capacity", "What capacity would hit", shown)


_LITTLE = 0.01  # of all prompt tokens


def _cannot(document: Document) -> list[str]:
    """Which tier or policy cannot help, and why; nothing where all of them might."""
    curve = document["curve"]
    if not curve:
        lengths_only = bool(document.get("decision"))
        text = (
            "Host memory and storage were not compared: this trace does not say which prompts "
            "begin alike, so nothing is known of hits."
        )
        return [text] if lengths_only else []
    total, ceiling, tiers = curve["input_tokens"], curve["unbounded_hit_tokens"], curve["tiers"]
    if not total or ceiling is None:
        return []
    if ceiling < _LITTLE * total:
        return [
            "No memory, store or eviction policy helps: only "
            f"{percent(ceiling / total)} of the prompt tokens repeat an earlier prompt."
        ]
    if not tiers or not tiers["inclusive"]["device_hit_tokens"]:
        return []
    device = tiers["inclusive"]["device_hit_tokens"][0]
    whose = "the smallest machine that was offered" if document.get("decision") else "the device"
    if ceiling - device < _LITTLE * total:
        return [
            "Host memory, storage and eviction policies can add hardly any hits: the memory of "
            f"{whose} alone hits {percent(device / total)} of the prompt tokens, and no cache can "
            f"hit more than {percent(ceiling / total)}."
        ]
    known, pages = curve["policies"], tiers["device_pages"]
    if "optimum" not in known or "lru" not in known:
        return []
    sizes = zip(
        curve["capacities_tokens"],
        known["lru"]["hit_rates"],
        known["optimum"]["hit_rates"],
        strict=True,
    )
    least = pages * curve["page_size"]
    most = max((best - lru for size, lru, best in sizes if size >= least), default=1.0)
    if most >= _LITTLE:
        return []
    return [
        "Another eviction policy can add hardly any hits: from the memory of "
        f"{whose} upward, even the best order of eviction hits at most {most * 100:.1f} points "
        "more than LRU."
    ]


def _curve_said(curve: Document) -> str:
    sizes, ends = curve["capacities_tokens"], []
    for name, found in curve["policies"].items():
        if found["hit_rates"]:
            ends.append(f"{policy_name(name)} {percent(max(found['hit_rates']))}")
    working = curve.get("working_set_tokens")
    told = f"Up to {short(sizes[-1])} tokens: at most " + ", ".join(ends) + "." if sizes else ""
    return told + (f" The working set is {short(working)} tokens." if working else "")


def _tokens(document: Document, page: Page) -> Html:
    variants = document["variants"]
    ends = [percent(one["whole"]["hit_rate"]) for one in variants]
    between = ends[0] if len(ends) == 1 else f"{min(ends, key=_rate)} to {max(ends, key=_rate)}"
    said = f"Of all prompt tokens, {between} were hits; the rest was lost or seen first."
    shown = page.figure(
        "tokens",
        "Where prompt tokens came from",
        said,
        figures.tokens(variants),
        tables.tokens(variants),
    )
    return _section("sources", "Hits and losses", shown)


def _rate(text: str) -> float:
    return float(text.rstrip(" %"))


def _times(document: Document, page: Page) -> list[Html]:
    variants = document["variants"]
    timed = [one for one in variants if one["ttft_quantiles_s"]]
    if not timed:
        return []
    limit = (document["slo"] or {}).get("ttft_s")
    p90 = [one["latency_s"]["ttft"]["p90"] for one in timed]
    judged = "" if tail_judged("p90", timed) else f" This is a tail (p90), {NOT_JUDGED}."
    said = f"Nine of ten requests have their first token within {seconds(min(p90))}"
    said += f" (best variant) to {seconds(max(p90))} (worst)." if len(timed) > 1 else "."
    rate = ((document.get("decision") or {}).get("demand") or {}).get("requests_per_s")
    load = f"The load is {count(rate)} requests a second." if rate else load_told(timed)
    said = f"{said}{judged} {load}"
    if limit:
        said += f" The limit (SLO) is {seconds(limit)}."
    cdf = page.figure(
        "cdf",
        "Distribution of the time to first token",
        said,
        figures.first_tokens(variants, limit),
        tables.first_tokens(timed),
    )
    if not any(one["latency_s"]["ttft"]["mean"] for one in timed):
        return [_section("times", "Time to first token", tag("p", "All times are zero."))]
    largest = sorted({_largest_part(one["latency_s"]) for one in timed})
    said = f"The largest part of the mean is {' or '.join(largest)}."
    split = page.figure(
        "parts",
        "Queue, load and compute",
        said,
        figures.parts(timed),
        tables.parts(timed),
    )
    return [_section("times", "Time to first token", cdf, split)]


def _largest_part(latency_s: Document) -> str:
    means = {name: latency_s[key]["mean"] for key, name in figures.PARTS}
    return max(means, key=lambda name: means[name])


def _over_time(variants: Sequence[Document], page: Page) -> list[Html]:
    options = joined(
        tag("option", one["label"], value=place, selected=place == page.first)
        for place, one in enumerate(variants)
    )
    choice = tag(
        "p",
        tag("label", "Variant: ", for_="variant"),
        tag("select", options, id="variant"),
        class_="choice",
    )
    shown = variants[page.first]
    tokens = page.chosen(
        "timeline",
        "Prompt tokens by source",
        "Each bar is the prompts of the requests that were admitted in one span of time; of lost "
        "tokens, each reason has a pattern.",
        [figures.timeline(one) for one in variants],
        joined(tables.timeline(one) for one in variants[:_MOST_TABLES]),
    )
    parts = [choice if len(variants) > 1 else tag("p", shown["label"]), tokens]
    if any(any(any((one["moved"] or {}).get(way, ())) for way in figures.WAYS) for one in variants):
        parts.append(
            page.chosen(
                "moved",
                "Transfers",
                "Bytes that arrived, by direction; the table has the sums of every variant.",
                [figures.moved(one) for one in variants],
                tables.moved(variants),
            )
        )
    return [_section("time", "Over time", *parts)]


_MOST_TABLES = 20


def _prefixes(document: Document, page: Page) -> Html:
    edges = document["edges"]
    if not edges:
        text = "No two requests of this trace share a whole page."
        return _section("prefixes", "Hot prefixes", tag("p", text))
    said = (
        f"{len(edges):,} shared prefixes in pages of {document['page_size']:,} tokens; an area is "
        "the prompt tokens that later requests could reuse, below what it begins with."
    )
    if document["left_out"]:
        said += (
            f" {document['left_out']:,} more, with {short(document['left_out_tokens'])} reusable "
            "tokens, are left out."
        )
    shown = page.figure(
        "tree", "Tree of hot prefixes", said, figures.prefixes(document), tables.prefixes(document)
    )
    return _section("prefixes", "Hot prefixes", shown)


def _definitions(document: Document) -> Html:
    rows = joined(
        joined([tag("dt", name), tag("dd", text)]) for name, text in definitions(document)
    )
    return _section("definitions", "What the figures mean", tag("dl", rows))


def _made(document: Document) -> Html:
    trace = document["trace"]
    path, kind = str(trace.get("path", "")), str(trace.get("format", ""))
    size = f"{trace.get('requests', 0):,} requests, {trace.get('input_tokens', 0):,} prompt tokens"
    parts = [
        tag("p", "Made by hicache ", document["hicache_version"], " with"),
        tag("pre", tag("code", document["command"]), tabindex=0),
        tag("p", f"Trace: {path} ({kind}), {size}."),
    ]
    if document["decision"]:
        prices = (document["decision"]["prices"]["per_hour"] or {}).items()
        told = ", ".join(f"{name} {count(price)}" for name, price in sorted(prices))
        parts.append(tag("p", f"Prices an hour, of a GPU or a GB of memory: {told}."))
    estimates = [
        "Times are those of a simulation with virtual time, not of a real machine.",
        *together(
            one.get("expected_error") for one in document["variants"] if not document["decision"]
        ),
        *document["estimates"],
    ]
    if not any(one["latency_s"] for one in document["variants"]):
        estimates = list(document["estimates"])
    if estimates:
        parts += [tag("h3", "What is an estimate"), tag("ul", *(tag("li", e) for e in estimates))]
    if document["decision"]:
        parts.append(tag("p", "More of what was assumed is in the HTML page.", class_="paper"))
    if document["variants"]:
        rows = [
            [
                one["label"],
                one["digest"],
                "yes" if one["complete"] else "no",
                _checked(one["checks"]),
                ", ".join(f"{key} {value}" for key, value in one["config"].items() if _told(value)),
            ]
            for one in document["variants"]
        ]
        columns = ["variant", "digest", "complete", "checks", "settings"]
        shown = tables.table("Runs", columns, rows)
        parts.append(tag("details", tag("summary", "Runs: digests and settings"), shown))
    return _section("made", "How this was made", *parts)


def _checked(checks: Document) -> str:
    return f"{checks.get('level', '')}: {checks.get('violations', 0)} violations"


def _told(value: object) -> bool:
    return value is not None and not isinstance(value, list | dict)
