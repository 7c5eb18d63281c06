"""The HTML file of a report, from its document alone: the same document gives the same bytes.

The file has everything in it: style, plotly, figures, and the document itself, so that it can be
rendered again from the file. Plotly, which draws, is the bundle of scatter and bar charts as it is
published, packed; the file PLOTLY beside it has its version and licence. The policy of the page
(CSP) lets the browser load nothing and run only the two
scripts that stand in it. Does not write files; see the commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .markup import Html, data, joined, packed_script, raw_script, tag
from .sections import Page, sections

DOCUMENT_ID = "document"  # of the script that has the document
_HERE = Path(__file__)
_NAVIGATION = (
    ("verdict", "Verdict"),
    ("candidates", "Candidates"),
    ("variants", "Variants"),
    ("capacity", "Capacity"),
    ("sources", "Hits"),
    ("times", "Times"),
    ("time", "Over time"),
    ("prefixes", "Prefixes"),
    ("definitions", "Definitions"),
    ("made", "Origin"),
    ("half-fit", "To fit"),
    ("half-judge", "To judge"),
    ("rows", "Rows"),
    ("rules", "Rules"),
)


def render(document: Mapping[str, Any]) -> str:
    """The text of the file. document: of `document.report`, or one that `reading` has checked."""
    labels = [one["label"] for one in document["variants"]]
    best = (document["verdict"] or {}).get("best")
    page = Page(first=labels.index(best) if best in labels else 0)
    body = sections(document, page)
    trace = document["trace"]
    told = (
        f"{trace['requests']:,} requests, {trace['input_tokens']:,} prompt tokens; "
        f"hicache {document['hicache_version']}"
    )
    return render_charts(document["title"], told, body, page, document)


def render_charts(title: str, told: str, body: Sequence[Html], page: Page, document: object) -> str:
    """A page with the charts of `page`, in the same style. told: a line below its title."""
    quiet = tag("noscript", tag("p", "The charts need JavaScript; each has a table beside it."))
    top = _top(title, told, joined(body), quiet)
    plotly = _HERE.with_name("plotly-basic.min.js.gz").read_bytes()
    own = _HERE.with_name("page.js").read_text(encoding="utf-8")
    charts = {"charts": page.charts, "choices": page.choices, "first": page.first}
    embedded = [data("charts", charts), data(DOCUMENT_ID, document)]
    scripts = [packed_script("plotly", plotly), raw_script(own)]
    return _page(title, top, body, embedded, scripts)


def render_tables(title: str, told: str, body: Sequence[Html], document: object) -> str:
    """A page without charts, in the same style. told: a line below its title."""
    return _page(title, _top(title, told, joined(body)), body, [data(DOCUMENT_ID, document)], [])


def _page(
    title: str,
    top: Html,
    body: Sequence[Html],
    embedded: Sequence[Html],
    scripts: Sequence[tuple[Html, str]],
) -> str:
    """scripts: each with its hash."""
    allowed = " ".join(digest for _, digest in scripts) or "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    style = Html(f"<style>{_HERE.with_name('page.css').read_text(encoding='utf-8')}</style>")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        style,
    )
    shown = tag("body", top, tag("main", *body), *embedded, *(script for script, _ in scripts))
    return f"<!DOCTYPE html>\n{tag('html', head, shown, lang='en')}\n"


def _top(title: str, told: str, body: str, *more: Html) -> Html:
    links = [
        tag("li", tag("a", text, href=f"#{name}"))
        for name, text in _NAVIGATION
        if f'id="{name}"' in body
    ]
    navigation = tag("nav", tag("ul", *links), aria_label="Sections")
    return tag("header", tag("h1", title), tag("p", told), navigation, *more)
