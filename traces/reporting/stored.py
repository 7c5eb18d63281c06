"""What storage did in a replay, and what it did not do: tables, rows, advice.

Does not count anything; see traces/replaying.
"""

from __future__ import annotations

from rich.table import Table

from hicache.storage.base import Losses

from ..replaying import following as caps
from ..replaying.account import WHOLE
from ..replaying.config import ReplayConfig as Settings
from ..results.record import Storage
from ..terminal.tables import table
from ..terminal.text import name as shown
from .amounts import gigabytes

_ENDS = {
    WHOLE: "brought what it asked for",
    "miss": "storage had fewer pages, or did not say",
    "too_short": "fewer tokens than the threshold",
    "budget": "too many tokens under way",
    "no_host_pages": "no room on host",
    "short": "storage delivered less than it said",
    "late": "the request did not wait longer",
    "flushed": "the cache was flushed",
    "detached": "storage was detached",
}

_REASONS = {
    caps.NOT_READY: "still being computed by another request",
    caps.EVICTED: "evicted, also from storage",
    caps.NEVER_BACKED_UP: "evicted from the device, never copied to host",
    caps.NEVER_STORED: "evicted from host before it was stored",
    caps.STORE_FAILED: "storage did not take it",
    caps.WAITING: "evicted while the request waited",
    "too_short": "too few tokens to fetch (--prefetch-threshold)",
    "budget": "too many tokens being fetched",
    "no_host_pages": "no room on host to fetch it",
    "late": "fetched too late",
    "flushed": "the cache was flushed",
    "detached": "storage was detached",
    "short_read": "storage said that it has it, and did not",
    "corrupt": "storage had it, and it did not verify",
    "failed": "storage failed or did not answer",
    "evicted_from_storage": "evicted from storage (--storage-size)",
    "lost_in_storage": "storage took it and lost it",
    "deleted": "deleted from storage",
    "not_loaded": "on host, not loaded",
    "together": "no boundary suits all components",
    "complete": "computed for its logits",
}


def setting_rows(settings: Settings) -> list[tuple[str, str]]:
    """The rows of the head of a report."""
    rows = []
    storage, core = settings.storage, settings.core
    if storage is not None:
        link = storage.options
        size = f"{link.size_bytes / 1e9:,.4g} GB" if link.size_bytes else "no limit"
        speed = (
            f"{link.read_bytes_per_s / 1e9:g} GB/s read, {link.write_bytes_per_s / 1e9:g} written"
        )
        if settings.mode == "hits":
            speed = "no clock"
        rows = [
            ("storage", f"{shown(storage.address)}: {size}, {speed}"),
            ("prefetch", f"{storage.policy}, {core.prefetch_threshold_tokens:,} tokens or more"),
        ]
    if settings.flushed:
        tiers = " and ".join(tier.name.lower() for tier in settings.flushed)
        rows.append(("rounds", f"{tiers} emptied between rounds"))
    return rows


def prefetch_table(storage: Storage) -> Table:
    """How prefetches ended."""
    result = table("Prefetches", "", "requests", "tokens asked", "found", "fetched")
    ended = storage.prefetches.ended
    for reason in sorted(ended, key=lambda one: [*_ENDS].index(one)):
        one = ended[reason]
        tokens = (one.asked_tokens, one.found_tokens, one.fetched_tokens)
        result.add_row(_ENDS[reason], f"{one.requests:,}", *(f"{count:,}" for count in tokens))
    result.add_section()
    result.add_row("lookups begun", f"{storage.prefetches.begun:,}", "", "", "")
    return result


def reason_in_words(reason: str) -> str:
    """The words of a table for a reason; a component's own name for a component."""
    return _REASONS.get(reason, f"no {reason} to continue from")


def transfer_rows(storage: Storage | None) -> list[tuple[str, str, str, str]]:
    """(what, values, gigabytes, busy seconds) of storage, for the table of tiers."""
    if storage is None:
        return []
    rows = []
    for what, moved in (("host to storage", storage.written), ("storage to host", storage.read)):
        busy = "-" if moved.busy_s is None else f"{moved.busy_s:,.3f}"
        done = f"{moved.values.get('done', 0):,}"
        rows.append((what, done, f"{moved.bytes_total / 1e9:,.2f}", busy))
        wrong = sorted((end, count) for end, count in moved.values.items() if end != "done")
        rows += [(f"  {end}", f"{count:,}", "", "") for end, count in wrong]
    return rows


def most_lost(use: Storage | None) -> str | None:
    """The reason of at least half of the tokens that were lost; None without one."""
    if use is None or not use.lost_tokens:
        return None
    reason, most = next(iter(use.lost_tokens.items()))
    return (
        reason if 2 * most.tokens >= sum(one.tokens for one in use.lost_tokens.values()) else None
    )


def advice(settings: Settings, reason: str) -> tuple[str, ...]:
    """What to try where tokens were lost to `reason`; empty if storage has no option for it."""
    storage = settings.storage
    assert storage is not None
    size = 2 * storage.options.size_bytes
    tried = {
        "too_short": "--prefetch-threshold 0",
        "late": "" if storage.policy == "wait_complete" else "--prefetch wait_complete",
        "evicted_from_storage": f"--storage-size {gigabytes(size, '')}"
        if size
        else "more room for the store, which has no --storage-size",
        caps.NEVER_BACKED_UP: "--write-policy write_through",
    }.get(reason)
    return (tried,) if tried else ()


_LOSSES = {
    "outages": "times that it stopped answering",
    "write_outages": "times that it stopped taking writes",
    "lookups_unanswered": "look-ups without an answer",
    "reads_failed": "reads that failed",
    "reads_missing": "values that it said it has, and had not",
    "reads_corrupt": "values that did not verify",
    "writes_refused": "writes that it did not take",
    "deletes_failed": "deletes that failed",
    "late": "answers that came too late",
    "waited_s": "seconds in calls that failed",
}


def losses_table(losses: Losses) -> Table | None:
    """What the store did not do; None if it did everything. Those of a real store are counted in
    values as it has them (see hicache/storage/base), those of a simulated one in pages."""
    if losses == Losses():
        return None
    result = table("Not done by storage", "", "")
    for name, words in _LOSSES.items():
        if count := getattr(losses, name):
            result.add_row(words, f"{count:,.1f}" if name == "waited_s" else f"{count:,}")
    return result
