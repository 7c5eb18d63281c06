"""Building HTML so that text is always text: everything is escaped that is not made here.

`tag` escapes its children unless they are `Html`, which only this file makes. JSON inside a script
has no character that could end it. Chart text is escaped for the small markup that plotly reads in
labels. Unsafe characters are shown as escapes, as on a terminal. Does not know what a report says.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Iterable

from ..terminal.text import visible

_VOID = {"meta", "br", "hr", "col"}
# What could end a script or begin a comment in one, and what old parsers take for a line's end.
_SCRIPT = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | int | bool | None) -> Html:
    """An element. Attributes: `_` stands for a hyphen, a `_` at the end is left out (`for_`); True
    has no value; None and False leave the attribute out."""
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(visible(str(value)))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{joined(children)}</{name}>")


def joined(parts: Iterable[str], between: str = "") -> Html:
    return Html(html.escape(between).join(map(escaped, parts)))


def escaped(text: str) -> Html:
    return text if isinstance(text, Html) else Html(html.escape(visible(text)))


def raw_script(text: str) -> tuple[Html, str]:
    """A script of ours or of plotly, and the hash by which the page allows it."""
    digest = hashlib.sha256(text.encode()).digest()
    return Html(f"<script>{text}</script>"), f"'sha256-{base64.b64encode(digest).decode()}'"


def packed_script(name: str, content: bytes) -> tuple[Html, str]:
    """A script that the page unpacks by itself (gzip, in base64) under an id, and the hash by which
    the page allows it."""
    packed = base64.b64encode(content).decode()
    _, digest = raw_script(gzip.decompress(content).decode())
    return Html(f'<script type="text/plain" id="{name}">{packed}</script>'), digest


def data(name: str, value: object) -> Html:
    """JSON that a script reads, under an id."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Html(f'<script type="application/json" id="{name}">{text.translate(_SCRIPT)}</script>')


def chart_text(text: str, most: int = 60) -> str:
    """Text for a label of a chart, where plotly reads tags and entities; the middle is left out."""
    line = visible(text).replace("\n", " ")
    if len(line) > most:
        line = f"{line[: most * 2 // 3]}...{line[len(line) - most // 4 :]}"
    return html.escape(line, quote=False)
