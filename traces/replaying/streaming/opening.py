"""Traces that are read while they are replayed: a generator named on the command line, or a file.

    generate:random-tree:requests=10M,depth=3     the requests of `hicache generate random-tree`
    trace.jsonl with --stream                     a native trace of segments

Does not read requests (see formats/_streamed) or replay them (see run).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from hicache.core.errors import CallerError

from ...formats import native
from ...formats._open import open_trace, parse, source
from ...formats._rows import About
from ...formats._streamed import StreamedTrace
from ...formats.base import Lines, Record
from ...formats.native import Request
from ...generators import base
from ...terminal.options import UNBOUNDED, OptionRecord
from ...terminal.rows import Parser, add_rows, flag, rows
from ..declared.needs import Need
from ..declared.trace import GENERATE
from ..options import ReplayOptions, in_passes, that_need

_SAMPLE = 1000  # requests that sizes and options are checked with


def streams(options: ReplayOptions) -> bool:
    """Whether the options ask for a trace that is not held."""
    return options.stream or bool(options.trace and options.trace.startswith(GENERATE))


def opened(options: ReplayOptions) -> StreamedTrace:
    """The trace that the options name. Raises CallerError for what cannot be read once."""
    path = options.trace
    if path is None or path == "-":
        raise CallerError(
            "--stream: expected a file or generate:NAME, since the beginning is read twice, found "
            f"{'no trace' if path is None else 'standard input'}; name one"
        )
    if path.startswith(GENERATE):
        return _generated(path, options.limit)
    sample = open_trace(path, options.format or "auto", min(options.limit or _SAMPLE, _SAMPLE))
    if sample.format != native.__name__.rpartition(".")[2]:
        raise CallerError(
            f"--stream: expected a native trace of segments, found {sample.format}; leave it out"
        )

    def reading(numbers: Mapping[str, int]) -> Iterator[Request]:
        files = source(path, options.format or "auto", About()).files  # open while it is held
        yield from islice(native.reading(files, numbers), options.limit or None)

    return StreamedTrace(path, reading, 0, sample)


def check_streamed(options: ReplayOptions) -> None:
    """Raises CallerError for an option that needs the whole trace, or each request at the end."""
    for name in that_need(Need.HELD):
        if getattr(options, name):
            raise CallerError(
                f"{flag(name)}: expected a trace that is held, found one that is read once "
                f"({options.trace}); leave the option out, or write the trace to a file and "
                "replay it without --stream"
            )
    if in_passes(options):
        raise CallerError(
            f"--engine: expected a trace that is held in hits mode, found one that is read once "
            f"({options.trace}); leave the option out, or write the trace to a file and replay it "
            "without --stream"
        )
    if options.device_pages == UNBOUNDED:
        raise CallerError(
            "--device-pages: expected a number for a trace that is read once, found unbounded; "
            "give one"
        )
    if options.check == "every":
        raise CallerError(
            "--check: expected sampled or off for a trace that is read once, found every, which "
            "counts every request a second time; give one of them"
        )


def _generated(path: str, limit: int) -> StreamedTrace:
    name, _, given = path.removeprefix(GENERATE).partition(":")
    name = name.replace("-", "_")
    generator = base.load(name)
    own = _options(name, generator, given)
    if generator.sender(own) is not None:
        raise CallerError(
            f"{path}: expected requests that arrive at their times, found a client that sends "
            "them; write the trace with `hicache generate` and replay the file"
        )
    total = generator.extent(own).requests
    total = min(total, limit) if limit else total
    text = (line.encode() for line in base.text(name, generator, own))
    sample = parse(Lines(path, text), limit=min(total, _SAMPLE))

    def reading(numbers: Mapping[str, int]) -> Iterator[Request]:
        lines = _Records(path, generator.records(own))
        return islice(native.made(lines, iter(lines), numbers), total)

    return StreamedTrace(path, reading, total, sample)


def _options(name: str, generator: base.Generator, given: str) -> OptionRecord:
    """The options of a generator, from `requests=10M,depth=3`."""
    parser = Parser(prog=f"hicache generate {name.replace('_', '-')}", add_help=False)
    add_rows(parser, rows(generator.Options))
    words = [f"--{part.strip()}" for part in given.split(",")] if given else []
    for word in words:
        if "=" not in word:
            raise CallerError(
                f"{GENERATE}{name}: expected options such as requests=10M, separated by commas, "
                f"found {word[2:]!r}; give each a value"
            )
    names = [word.partition("=")[0] for word in words]
    for option in names:
        if names.count(option) > 1:
            raise CallerError(
                f"{GENERATE}{name}: expected each option once, found {option[2:]} twice; leave one "
                "out"
            )
    return generator.Options.read(parser.parse_args(words))


class _Records(Lines):
    """The records that a generator makes, instead of the lines of a file."""

    def __init__(self, path: str, records: Iterable[Record]) -> None:
        self.path = path
        self.number = 0
        self.element = ""
        self._records = records

    def __iter__(self) -> Iterator[Record]:
        for record in self._records:
            self.number += 1
            yield record
