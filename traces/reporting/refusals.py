"""Refusals in words: how often the core told a request to wait, and for what.

Does not count them; see traces/replaying.
"""

from __future__ import annotations

_WAITS = {
    "writing_back": "waiting for copies",
    "arriving": "waiting for a load",
    "no_pages": "out of pages",
    "fetching": "waiting for a prefetch",
}
_NO_LACK = ("arriving", "fetching")  # refused until pages have arrived: no lack of pages


def retries(refused: dict[str, int]) -> str:
    """Refusals that were retried: `703 waiting for copies, 12 out of pages of swa`."""
    parts = []
    for name, count in sorted(refused.items(), key=lambda item: (-item[1], item[0])):
        reason, of, component = name.partition(" of ")
        parts.append(f"{count:,} {_WAITS.get(reason, reason)}{of}{component}")
    return ", ".join(parts)


def for_pages(refused: dict[str, int]) -> dict[str, int]:
    """Those for lack of pages: none were free, or only after copies to host."""
    return {why: count for why, count in refused.items() if not why.startswith(_NO_LACK)}


def how_often(refused: dict[str, int]) -> str:
    """`12 times for lack of pages (8 out of pages, 4 waiting for copies)`; refused: not empty."""
    count = sum(refused.values())
    parts = f" ({retries(refused)})" if len(refused) > 1 else ""
    return f"{'once' if count == 1 else f'{count:,} times'} for lack of pages{parts}"
