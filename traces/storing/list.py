"""`hicache store list`: the contexts whose pages a store holds: whose they are, and how many."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TextIO

from ..reporting.head import head
from ..terminal.output import check_outputs, write_json
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, table
from . import _contents as contents
from ._contents import Owner

SUMMARY = "list whose pages a store holds: model, page size, pools"


Options = contents.OfStore


def run(options: Options, command: str) -> int:
    check_outputs({}, json=options.json)
    with contents.opened(options.address) as store:
        found = contents.owners(store)
    with ignore_broken_pipe():
        _print(found, sys.stderr if options.json == "-" else sys.stdout)
    if options.json:
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
        write_json(options.json, head(command, complete=True) | {"contexts": owned})
    return 0


def _print(found: list[Owner], stream: TextIO) -> None:
    out = console(stream)
    if not found:
        out.print("The store is empty.")
        return
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
    out.print(rows)


def when(used_at_s: float) -> str:
    """A time of use for a table, in local time."""
    return f"{datetime.fromtimestamp(used_at_s):%Y-%m-%d %H:%M}" if used_at_s else "?"
