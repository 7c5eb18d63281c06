"""`hicache store list`: the contexts whose pages a store holds: whose they are, and how many."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..terminal.tables import table
from . import _contents as contents
from ._contents import Owner

SUMMARY = "list whose pages a store holds: model, page size, pools"


Options = contents.OfStore


def run(options: Options, command: str) -> int:
    with contents.opened(options) as store:
        found = contents.owners(store)
    owned = [
        {
            "context": owner.context,
            "document": owner.document,
            "pages": len(owner.pages),
            "values": owner.values,
            "bytes": owner.bytes,
            "used_at_s": owner.used_at_s,
        }
        for owner in found
    ]
    contents.tell(options, command, {"contexts": owned}, _shown(found))
    return 0


def _shown(found: list[Owner]) -> Any:
    if not found:
        return "The store is empty."
    rows = table("Contexts", "context", "model", "page", "pages", "MB", "last used")
    for column in (0, -1):
        rows.columns[column].no_wrap = True
    rows.columns[1].justify = "left"
    for owner in found:
        rows.add_row(
            owner.context[:12] or "(other keys)",
            " ".join(filter(None, (owner.named("model"), owner.named("revision"))))
            if owner.document
            else "?",
            owner.named("page_size"),
            f"{len(owner.pages):,}",
            f"{owner.bytes / 1e6:,.1f}",
            when(owner.used_at_s),
        )
    return rows


def when(used_at_s: float) -> str:
    """A time of use for a table, in local time."""
    return f"{datetime.fromtimestamp(used_at_s):%Y-%m-%d %H:%M}" if used_at_s else "?"
