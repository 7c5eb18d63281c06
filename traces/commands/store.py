"""`hicache store`: what a store of pages holds; verifies it and cleans it up."""

import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from hicache.core.errors import CallerError
from hicache.storage import keys
from hicache.storage.address import open_storage, parse, shown
from hicache.storage.base import Entry, Status, Storage, StorageOptions, listening
from hicache.storage.checksummed import HEADER_BYTES, Checksummed

from ..results.record import head
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import check_outputs, write_json
from ..terminal.streams import print_error
from ..terminal.tables import console, progress, table

WRONG_BYTES = 12
OTHER = ""  # the context of values whose keys are not of this format
_TIMEOUT_S = 10.0
_CHECKED_AT_ONCE, _DELETED_AT_ONCE = 16, 256
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
    out = console(sys.stderr if options.json == "-" else sys.stdout)
    for part in parts:
        out.print(part, soft_wrap=isinstance(part, str))
    if options.json:
        write_json(options.json, head(command, complete=True) | dict(result))


@dataclass
class Page:
    """The values that are useless without each other, of every pool and shard. digest: empty for
    the text of a context; the key of a value whose key is not of this format. used_at_s: the latest
    use (Unix time), 0 if the store does not say."""

    context: str
    digest: str
    keys: list[str] = field(default_factory=list)
    bytes: int = 0
    used_at_s: float = 0.0


def _pages(store: Storage, context: str = "") -> list[Page]:
    """What is stored of contexts that begin like this, the least recently used first."""
    pages: dict[tuple[str, str], Page] = {}
    for entry in store.entries(context):
        key = keys.take_apart(entry.key)
        names = (key.context, key.digest) if key else (OTHER, entry.key)
        page = pages.setdefault(names, Page(*names))
        page.keys.append(entry.key)
        page.bytes += entry.size_bytes
        page.used_at_s = max(page.used_at_s, entry.used_at_s)
    return sorted(pages.values(), key=lambda page: page.used_at_s)


def _document(store: Storage, page: Page) -> dict[str, Any] | None:
    """The document of the context whose text this is, None if it is not that one's."""
    text = bytearray(max(0, page.bytes - HEADER_BYTES))
    checked = Checksummed(store, delete_corrupt=False)
    done = checked.read(page.keys, [(memoryview(text),)]) == [Status.DONE]
    return keys.document_of(bytes(text), page.context) if done else None


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
                documents[page.context] = _document(store, page)
        figures = store.stats()
    rows = table("Contexts", "context", "model", "pages", "MB", "last used")
    rows.columns[0].no_wrap = rows.columns[-1].no_wrap = True
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
        values = sum(len(page.keys) for page in pages)
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
            results = _verify(store, entries, options.delete, report)
    wrong = [key for key, status in results.items() if status is Status.CORRUPT]
    counts = Counter(results.values())
    result = {
        "values": len(entries),
        "verified": counts[Status.DONE],
        "corrupt": wrong,
        "unread": counts[Status.FAILED],
    }
    lines = [f"{counts[Status.DONE]:,} of {len(entries):,} values are what was written."]
    lines += [f"corrupt: {key}" for key in wrong[:_SHOWN]]
    if wrong:
        what = "deleted" if options.delete else "read as missing; --delete deletes them"
        lines.append(f"{len(wrong):,} are corrupt: {what}")
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
    """What became of reading each value."""
    checked = Checksummed(store, delete_corrupt=delete)
    result: dict[str, Status] = {}
    for first in range(0, len(entries), _CHECKED_AT_ONCE):
        some = entries[first : first + _CHECKED_AT_ONCE]
        values = [memoryview(bytearray(max(0, entry.size_bytes - HEADER_BYTES))) for entry in some]
        statuses = checked.read([entry.key for entry in some], [(value,) for value in values])
        for entry, value, status in zip(some, values, statuses, strict=True):
            key = keys.take_apart(entry.key)
            is_text = status is Status.DONE and key is not None and not key.pool
            if is_text and keys.document_of(bytes(value), entry.key.partition("/")[0]) is None:
                status = Status.CORRUPT
            result[entry.key] = status
        report(first + len(some))
    return result


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
        gone, kept = [], set[str]()
        for page in pages:
            large = options.size is not None and left > options.size
            old = options.unused_for is not None and 0 < page.used_at_s < oldest_s
            if everything or large or old:
                left -= page.bytes
                gone.append(page)
            else:
                kept.add(page.context)
        empty = {page.context for page in gone} - kept - {OTHER}
        names = [key for page in gone for key in page.keys]
        names += [keys.context_key(context) for context in sorted(empty)]
        failed: set[str] = set()
        with progress("gc", len(names), "values") as report, listening() as heard:
            for first in range(0, len(names), _DELETED_AT_ONCE):
                some = names[first : first + _DELETED_AT_ONCE]
                results = zip(some, store.delete(some), strict=True)
                gone_now = (Status.DONE, Status.MISSING)
                failed |= {key for key, status in results if status not in gone_now}
                report(first + len(some))
    gone = [page for page in gone if failed.isdisjoint(page.keys)]
    deleted = sum(page.bytes for page in gone)
    result = {
        "pages": len(pages),
        "bytes": size,
        "deleted_pages": len(gone),
        "deleted_bytes": deleted,
        "failed_values": len(failed),
    }
    amounts = f"{len(gone):,} of {len(pages):,} pages, {deleted / 1e6:,.1f} of {size / 1e6:,.1f} MB"
    _tell(options, command, result, f"Deleted {amounts}.")
    if failed:
        raise CallerError(
            f"storage: expected a store that deletes, found {len(failed):,} values that it kept"
            f" ({''.join(heard)}); see whether it can be written"
        )
    return 0


def actions() -> dict[str, Any]:
    check, gc = "read and verify every value in a store", "delete the least recently used pages"
    return {
        "check": SimpleNamespace(SUMMARY=check, Options=Check, run=_check),
        "gc": SimpleNamespace(SUMMARY=gc, Options=Gc, run=_gc),
        "list": SimpleNamespace(SUMMARY="list whose pages it holds", Options=OfStore, run=_list),
    }
