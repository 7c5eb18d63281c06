"""`hicache store gc`: deletes pages until a store is small or fresh enough, least used first.

All values of a page go together, of every pool and shard. The text of a context goes with its last
page.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hicache.core.errors import CallerError
from hicache.storage import keys
from hicache.storage.base import Entry, Status, Storage, listening

from ..terminal import options as read
from ..terminal.progress import progress
from ..terminal.rows import option
from . import _contents as contents

SUMMARY = "delete the pages that were used least recently, down to a size or an age"
_AT_ONCE = 256  # values
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Page:
    """The values that are useless without each other."""

    values: tuple[Entry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.values)

    @property
    def used_at_s(self) -> float:
        return max(entry.used_at_s for entry in self.values)


def duration(text: str) -> int:
    """Seconds of a text such as 90s, 30m, 12h or 7d."""
    match = re.fullmatch(r"(\d{1,9})([smhd])", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a time such as 12h or 7d, found {text!r}")
    return int(match[1]) * _UNITS_S[match[2]]


@dataclass(frozen=True, slots=True)
class Options(contents.OfStore):
    """size: bytes. unused_for: seconds."""

    size: int | None = option("keep at most this much, such as 20GB", read.byte_size, "BYTES")
    unused_for: int | None = option(
        "delete what was not used for this long, such as 12h or 7d", duration, "TIME"
    )
    context: str | None = option(
        "delete pages of this context alone (see hicache store list); all of them without --size "
        "and --unused-for",
        str,
        "BEGINNING",
    )
    dry_run: bool = option("only say what would be deleted", default=False)


def run(options: Options, command: str) -> int:
    if options.size is None and options.unused_for is None and not options.context:
        raise CallerError(
            "hicache store gc: expected --size, --unused-for or --context, found none; say what to "
            "keep"
        )
    with contents.opened(options) as store:
        if options.context:
            contents.check_context(store, options.context)
        pages = sorted(pages_of(store, options.context or ""), key=lambda page: page.used_at_s)
        gone = list(too_much(pages, options, time.time()))
        failed, why = set[str](), ""
        if not options.dry_run:
            failed, why = _delete(store, gone, {*pages} - {*gone})
    gone = [page for page in gone if failed.isdisjoint(entry.key for entry in page.values)]
    deleted = sum(page.bytes for page in gone)
    result = {
        "dry_run": options.dry_run,
        "pages": len(pages),
        "bytes": sum(page.bytes for page in pages),
        "deleted_pages": len(gone),
        "deleted_bytes": deleted,
        "failed_values": len(failed),
    }
    told = (
        f"{'Would delete' if options.dry_run else 'Deleted'} {len(gone):,} of {len(pages):,} "
        f"pages, {deleted / 1e6:,.1f} MB of {sum(page.bytes for page in pages) / 1e6:,.1f} MB."
    )
    contents.tell(options, command, result, told)
    if failed:
        raise CallerError(
            f"storage: expected a store that deletes, found {len(failed):,} values that it kept"
            f"{why and f' ({why})'}; see whether it can be written"
        )
    return 0


def pages_of(store: Storage, context: str) -> Iterator[Page]:
    """All pages. A value whose key is not of this format is a page by itself."""
    families: defaultdict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in store.entries(context):
        parts = keys.take_apart(entry.key)
        if parts is None:
            families["", entry.key].append(entry)
        elif parts.pool:
            families[parts.context, parts.digest].append(entry)
    for values in families.values():
        yield Page(tuple(values))


def too_much(pages: Sequence[Page], options: Options, now_s: float) -> Iterator[Page]:
    """Which of the pages go; they are sorted by their last use."""
    left = sum(page.bytes for page in pages)
    everything = options.size is None and options.unused_for is None
    for page in pages:
        large = options.size is not None and left > options.size
        known = page.used_at_s > 0
        old = options.unused_for is not None and known
        if everything or large or (old and now_s - page.used_at_s > (options.unused_for or 0)):
            left -= page.bytes
            yield page


def _delete(store: Storage, gone: Sequence[Page], kept: Iterable[Page]) -> tuple[set[str], str]:
    """Delete the pages, and the texts of contexts of which nothing is kept; the values that the
    store did not delete, and why."""
    living = {_context(page) for page in kept}
    names = [entry.key for page in gone for entry in page.values]
    names += [
        keys.context_key(context)
        for context in sorted({_context(page) for page in gone} - living - {""})
    ]
    failed: set[str] = set()
    with progress("gc", len(names), "values") as report, listening() as heard:
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            found = zip(some, store.delete(some), strict=True)
            failed |= {key for key, one in found if one not in (Status.DONE, Status.MISSING)}
            report(first + len(some))
    return failed, "".join(heard)


def _context(page: Page) -> str:
    parts = keys.take_apart(page.values[0].key)
    return "" if parts is None else parts.context
