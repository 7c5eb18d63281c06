"""`hicache store stats`: how much a store holds, by context, pool and shard."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TextIO

from ..reporting.head import head
from ..terminal.output import check_outputs, write_json
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, pairs, table
from . import _contents as contents
from ._contents import Owner

SUMMARY = "count the pages and bytes in a store, by context, pool and shard"


Options = contents.OfStore


def run(options: Options, command: str) -> int:
    check_outputs({}, json=options.json)
    with contents.opened(options.address) as store:
        found, figures = contents.owners(store), store.stats()
    with ignore_broken_pipe():
        _print(found, figures, sys.stderr if options.json == "-" else sys.stdout)
    if options.json:
        parts = [
            {"context": owner.context, **asdict(part)}
            for owner in found
            for part in owner.parts.values()
        ]
        done = head(command, complete=True)
        write_json(options.json, done | {"store": figures, "parts": parts})
    return 0


def _print(found: list[Owner], figures: dict[str, int | float | str], stream: TextIO) -> None:
    out = console(stream)
    out.print(
        pairs(
            "Store",
            [
                (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
                for name, value in figures.items()
            ],
        )
    )
    rows = table("Values", "context", "model", "pool", "shard", "values", "MB")
    rows.columns[0].no_wrap = True
    for owner in found:
        for part in sorted(owner.parts.values(), key=lambda one: (one.pool, one.shard)):
            rows.add_row(
                owner.context[:12] or "(other keys)",
                owner.named("model"),
                part.pool,
                part.shard,
                f"{part.values:,}",
                f"{part.bytes / 1e6:,.1f}",
            )
    out.print(rows)
