"""`hicache store`: what a store of pages holds; verifies it and cleans it up."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from hicache.core.errors import CallerError
from hicache.storage import keys
from hicache.storage.address import open_storage, parse, shown
from hicache.storage.base import Entry, Status, Storage, StorageOptions, listening
from hicache.storage.verified import HEADER_BYTES, Verified

from ..results.record import head
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import check_outputs, write_json
from ..terminal.streams import ignore_broken_pipe, print_error
from ..terminal.tables import console, progress, table

WRONG_BYTES = 12
OTHER = ""  # the context of values whose keys are not of this format
_TIMEOUT_S = 10.0
_CHECKED_AT_ONCE, _BYTES_AT_ONCE, _DELETED_AT_ONCE = 64, 64 << 20, 256
_SHOWN = 20  # corrupt keys
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> int:
    """Seconds of a text such as 90s, 30m, 12h or 7d."""
    match = re.fullmatch(r"(\d{1,9})([smhd])", text, re.ASCII)
    if match is None:
        raise ValueError(f"expected a time such as 12h or 7d, found {text!r}")
    return int(match[1]) * _UNITS_S[match[2]]


@dataclass(frozen=True, slots=True)
class OfStore(OptionRecord):
    """What every action on a store has."""

    address: str = option("the store, such as file:DIR", str, "ADDRESS", positional=True)
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", read.output, "FILE"
    )


@dataclass(frozen=True, slots=True)
class Check(OfStore):
    delete: bool = option("delete what does not verify", default=False)


@dataclass(frozen=True, slots=True)
class Gc(OfStore):
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


@contextmanager
def _opened(options: OfStore) -> Iterator[Storage]:
    """The store at the address, which must be there. Raises CallerError."""
    check_outputs({}, json=options.json)
    address = parse(options.address)
    store = open_storage(address, StorageOptions(timeout_s=_TIMEOUT_S, create=False))
    if wrong := store.troubles():
        print_error(f"storage: {shown(address)}: {wrong}")
    try:
        yield store
    except OSError as error:
        raise CallerError(
            f"storage: expected a store that can be listed, found: {error.strerror or error}; see "
            "whether it answers"
        ) from error
    finally:
        store.close()


def _tell(options: OfStore, command: str, result: Mapping[str, object], *parts: Any) -> None:
    """Print what was found, and write the result as JSON if that is asked for."""
    with ignore_broken_pipe():
        out = console(sys.stderr if options.json == "-" else sys.stdout)
        for part in parts:
            out.print(part, soft_wrap=isinstance(part, str))
    if options.json:
        write_json(options.json, head(command, complete=True) | dict(result))


@dataclass(frozen=True, slots=True)
class Page:
    """The values that are useless without each other, of every pool and shard. digest: empty for
    the text of a context; the key of a value whose key is not of this format."""

    context: str
    digest: str
    values: tuple[Entry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.values)

    @property
    def used_at_s(self) -> float:
        """The latest use (Unix time), 0 if the store does not say."""
        return max(entry.used_at_s for entry in self.values)


def _pages(store: Storage, context: str = "") -> list[Page]:
    """What is stored of contexts that begin like this, the least recently used first."""
    families: defaultdict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in store.entries(context):
        key = keys.take_apart(entry.key)
        families[(key.context, key.digest) if key else (OTHER, entry.key)].append(entry)
    pages = [Page(*names, tuple(values)) for names, values in families.items()]
    return sorted(pages, key=lambda page: page.used_at_s)


def _document(store: Storage, entry: Entry) -> dict[str, Any] | None:
    """The document of the context whose text is stored there, None if it is not that one's."""
    text = bytearray(max(0, entry.size_bytes - HEADER_BYTES))
    checked = Verified(store, delete_corrupt=False)
    if checked.read([entry.key], [(memoryview(text),)]) != [Status.DONE]:
        return None
    return keys.document_of(bytes(text), entry.key.partition("/")[0])


def _list(options: OfStore, command: str) -> int:
    """Every context, the one that was used last first."""
    contexts: defaultdict[str, list[Page]] = defaultdict(list)
    documents: dict[str, dict[str, Any] | None] = {}
    with _opened(options) as store:
        for page in reversed(_pages(store)):
            if page.digest:
                contexts[page.context].append(page)
            else:
                contexts.setdefault(page.context, [])
                documents[page.context] = _document(store, page.values[0])
        figures = store.stats()
    rows = table("Contexts", "context", "model", "pages", "MB", "last used")
    for column in (0, -1):
        rows.columns[column].no_wrap = True
    rows.columns[1].justify = "left"
    result: list[dict[str, object]] = []
    for context, pages in contexts.items():
        document, size = documents.get(context), sum(page.bytes for page in pages)
        used_at_s = max((page.used_at_s for page in pages), default=0.0)
        names = [str((document or {}).get(key) or "") for key in ("model", "revision")]
        rows.add_row(
            context[:12] or "(other keys)",
            " ".join(filter(None, names)) or "?",
            f"{len(pages):,}",
            f"{size / 1e6:,.1f}",
            f"{datetime.fromtimestamp(used_at_s):%Y-%m-%d %H:%M}" if used_at_s else "?",
        )
        values = sum(len(page.values) for page in pages)
        sizes = {"pages": len(pages), "values": values, "bytes": size, "used_at_s": used_at_s}
        result.append({"context": context, "document": document, **sizes})
    shown_rows = rows if result else "The store is empty."
    _tell(options, command, {"store": figures, "contexts": result}, shown_rows)
    return 0


def _check(options: Check, command: str) -> int:
    """Reads every value. Code 12 if one is not what was written and stays where it is."""
    with _opened(options) as store:
        entries = sorted(store.entries(""))
        with progress("check", len(entries), "values") as report:
            found = _verify(store, entries, options.delete, report)
    wrong = [key for key, status in found.items() if status is Status.CORRUPT]
    counts = Counter(found.values())
    result = {
        "values": len(entries),
        "bytes": sum(entry.size_bytes for entry in entries),
        "verified": counts[Status.DONE],
        "corrupt": wrong,
        "gone": counts[Status.MISSING],
        "unread": counts[Status.FAILED],
        "deleted": options.delete,
    }
    lines = [f"{counts[Status.DONE]:,} of {len(entries):,} values are what was written."]
    lines += [f"corrupt: {key}" for key in wrong[:_SHOWN]]
    if wrong:
        lines += [f"... and {len(wrong) - _SHOWN:,} more"] * (len(wrong) > _SHOWN)
        lines.append("deleted" if options.delete else "read as missing; --delete deletes them")
    if counts[Status.MISSING]:
        lines.append(f"{counts[Status.MISSING]:,} went away meanwhile")
    _tell(options, command, result, *lines)
    if counts[Status.FAILED]:
        raise CallerError(
            f"storage: expected a store that answers, found {counts[Status.FAILED]:,} values that "
            "could not be read; try again when it does"
        )
    return WRONG_BYTES if wrong and not options.delete else 0


def _verify(
    store: Storage, entries: Sequence[Entry], delete: bool, report: Callable[[int], None]
) -> dict[str, Status]:
    """What became of reading each value, a bounded number of bytes at a time."""
    checked = Verified(store, delete_corrupt=delete)
    found: dict[str, Status] = {}
    first = 0
    while first < len(entries):
        some, size = [entries[first]], entries[first].size_bytes
        for entry in entries[first + 1 : first + _CHECKED_AT_ONCE]:
            size += entry.size_bytes
            if size > _BYTES_AT_ONCE:
                break
            some.append(entry)
        values = [memoryview(bytearray(max(0, one.size_bytes - HEADER_BYTES))) for one in some]
        statuses = checked.read([one.key for one in some], [(value,) for value in values])
        for entry, value, status in zip(some, values, statuses, strict=True):
            key = keys.take_apart(entry.key)
            if status is Status.DONE and key is not None and not key.pool:
                right = keys.document_of(bytes(value), key.context) is not None
                status = Status.DONE if right else Status.CORRUPT
            found[entry.key] = status
        first += len(some)
        report(first)
    return found


def _gc(options: Gc, command: str) -> int:
    """Deletes pages until the store is small or fresh enough, least used first. The text of a
    context goes with its last page."""
    everything = options.size is None and options.unused_for is None
    if everything and not options.context:
        raise CallerError("store gc: expected --size, --unused-for or --context, found none")
    with _opened(options) as store:
        listed = _pages(store, options.context or "")
        if options.context and not listed:
            raise CallerError(
                f"context: expected the beginning of one that is stored, found "
                f"{options.context!r}; see hicache store list"
            )
        pages = [page for page in listed if page.digest]
        size = left = sum(page.bytes for page in pages)
        oldest_s = time.time() - (options.unused_for or 0)
        gone = []
        for page in pages:
            large = options.size is not None and left > options.size
            old = options.unused_for is not None and 0 < page.used_at_s < oldest_s
            if everything or large or old:
                left -= page.bytes
                gone.append(page)
        failed, why = set[str](), ""
        if not options.dry_run:
            kept = {page.context for page in {*pages} - {*gone}}
            failed, why = _delete(store, gone, kept)
    gone = [page for page in gone if failed.isdisjoint(entry.key for entry in page.values)]
    deleted = sum(page.bytes for page in gone)
    result = {
        "dry_run": options.dry_run,
        "pages": len(pages),
        "bytes": size,
        "deleted_pages": len(gone),
        "deleted_bytes": deleted,
        "failed_values": len(failed),
    }
    told = (
        f"{'Would delete' if options.dry_run else 'Deleted'} {len(gone):,} of {len(pages):,} "
        f"pages, {deleted / 1e6:,.1f} MB of {size / 1e6:,.1f} MB."
    )
    _tell(options, command, result, told)
    if failed:
        raise CallerError(
            f"storage: expected a store that deletes, found {len(failed):,} values that it kept"
            f"{why and f' ({why})'}; see whether it can be written"
        )
    return 0


def _delete(store: Storage, gone: Sequence[Page], kept: set[str]) -> tuple[set[str], str]:
    """Delete the pages, and the texts of contexts of which nothing is kept; the values that the
    store did not delete, and why."""
    empty = {page.context for page in gone} - kept - {OTHER}
    names = [entry.key for page in gone for entry in page.values]
    names += [keys.context_key(context) for context in sorted(empty)]
    failed: set[str] = set()
    with progress("gc", len(names), "values") as report, listening() as heard:
        for first in range(0, len(names), _DELETED_AT_ONCE):
            some = names[first : first + _DELETED_AT_ONCE]
            found = zip(some, store.delete(some), strict=True)
            failed |= {key for key, one in found if one not in (Status.DONE, Status.MISSING)}
            report(first + len(some))
    return failed, "".join(heard)


class Action(NamedTuple):
    SUMMARY: str
    Options: type[OptionRecord]
    run: Callable[[Any, str], int]


def actions() -> dict[str, Action]:
    return {
        "check": Action("read and verify every value in a store", Check, _check),
        "gc": Action("delete the least recently used pages, down to a size or an age", Gc, _gc),
        "list": Action("list whose pages a store holds: model, pages, bytes", OfStore, _list),
    }
