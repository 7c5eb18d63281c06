"""`hicache store stats`: how much a store holds, by context, pool and shard."""

from __future__ import annotations

from dataclasses import asdict

from ..terminal.tables import pairs, table
from . import _contents as contents

SUMMARY = "count the pages and bytes in a store, by context, pool and shard"


Options = contents.OfStore


def run(options: Options, command: str) -> int:
    with contents.opened(options) as store:
        found, figures = contents.owners(store), store.stats()
    parts = [
        {"context": owner.context, **asdict(part)}
        for owner in found
        for part in owner.parts.values()
    ]
    told = pairs(
        "Store",
        [
            (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
            for name, value in figures.items()
        ],
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
    contents.tell(options, command, {"store": figures, "parts": parts}, told, rows)
    return 0
