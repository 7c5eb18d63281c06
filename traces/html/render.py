"""The HTML file of a report, from its document alone: the same document gives the same bytes.

The file has everything in it: style, plotly, figures, and the document itself, so that it can be
rendered again from the file. Its policy (CSP) lets the browser load nothing and run only the two
scripts that stand in it. Does not write files; see the commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError

from .markup import Html, data, joined, raw_script, tag
from .sections import Page, sections

DOCUMENT_ID = "document"  # of the script that has the document
_HERE = Path(__file__)
_NAVIGATION = (
    ("verdict", "Verdict"),
    ("variants", "Variants"),
    ("capacity", "Capacity"),
    ("sources", "Hits"),
    ("times", "Times"),
    ("time", "Over time"),
    ("prefixes", "Prefixes"),
    ("definitions", "Definitions"),
    ("made", "Origin"),
)


def render(document: Mapping[str, Any]) -> str:
    """The text of the file. document: of `document.report`, or one that `reading` has checked."""
    labels = [one["label"] for one in document["variants"]]
    best = (document["verdict"] or {}).get("best")
    page = Page(first=labels.index(best) if best in labels else 0)
    body = sections(document, page)
    plotly, plotly_hash = raw_script(_plotly())
    own, own_hash = raw_script(_HERE.with_name("page.js").read_text(encoding="utf-8"))
    policy = (
        f"default-src 'none'; script-src {plotly_hash} {own_hash}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    style = Html(f"<style>{_HERE.with_name('page.css').read_text(encoding='utf-8')}</style>")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", document["title"]),
        style,
    )
    charts = {"charts": page.charts, "choices": page.choices, "first": page.first}
    end = [data("charts", charts), data(DOCUMENT_ID, document), plotly, own]
    shown = tag("body", _top(document, joined(body)), tag("main", *body), *end)
    return f"<!DOCTYPE html>\n{tag('html', head, shown, lang='en')}\n"


def _top(document: Mapping[str, Any], body: str) -> Html:
    links = [
        tag("li", tag("a", text, href=f"#{name}"))
        for name, text in _NAVIGATION
        if f'id="{name}"' in body
    ]
    trace = document["trace"]
    told = (
        f"{trace.get('requests', 0):,} requests, {trace.get('input_tokens', 0):,} prompt tokens; "
        f"hicache {document['hicache_version']}"
    )
    quiet = tag("noscript", tag("p", "The charts need JavaScript; each has a table beside it."))
    return tag(
        "header",
        tag("h1", document["title"]),
        tag("p", told),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        quiet,
    )


def _plotly() -> str:
    """The library that draws, as a script. Raises CallerError where it is not installed."""
    try:
        place = resources.files("plotly").joinpath("package_data", "plotly.min.js")
        return place.read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError):
        raise CallerError(
            "the report: expected plotly, which draws it, found none; pip install 'plotly>=6'"
        ) from None
