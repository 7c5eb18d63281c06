"""`hicache generate`: writes a synthetic trace in the native format.

Does not define any workload; see traces/generators.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from hicache import registry
from hicache.core.errors import CallerError

from ..formats.base import MAX_REQUEST_TOKENS, MAX_REQUESTS
from ..generators import base
from ..terminal import options as read
from ..terminal.output import check_outputs, write_whole
from ..terminal.progress import progress
from ..terminal.rows import Declared, OptionRecord, option, read_values, rows

_LARGE_BYTES = 1 << 30  # a trace above is announced
_REPORT_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """own: the options of the generator."""

    generator: str
    output: str
    own: OptionRecord


class _Command:
    """A generator as a command: its options and the file to write."""

    def __init__(self, name: str) -> None:
        self.name, self.generator = name, base.load(name)
        self.SUMMARY = self.generator.SUMMARY
        self.Options, self.run = self, run

    def declared(self) -> list[Declared]:
        return [*self.generator.Options.declared(), *rows(_Output)]

    def read(self, words: Sequence[str], prog: str, about: str, epilog: str) -> Options:
        values = read_values(self.declared(), words, prog, about, epilog)
        output = values.pop("output")
        return Options(self.name, output, self.generator.Options.made(values))


@dataclass(frozen=True)
class _Output(OptionRecord):
    output: str = option("- is stdout", *read.OUTPUT, short="-o", default="-")


def actions() -> dict[str, _Command]:
    return {name: _Command(name) for name in registry.names(base.GENERATORS)}


def run(options: Options, command: str) -> int:
    generator = base.load(options.generator)
    extent = generator.extent(options.own)
    check_outputs(options.own.files, output=options.output)
    _check(options, extent)
    if extent.bytes > _LARGE_BYTES:
        print(
            f"hicache generate: {extent.requests:,} requests, about {extent.bytes / 1e9:,.1f} GB; "
            "Ctrl-C stops it",
            file=sys.stderr,
            flush=True,
        )
    with _progress(options, extent.requests) as report:
        lines = base.text(options.generator, generator, options.own)
        write_whole(options.output, _counted(lines, report))
    return 0


def _check(options: Options, extent: base.Extent) -> None:
    """Raises CallerError, before any work, for a trace that nothing could read or hold."""
    for found, most, what in (
        (extent.requests, MAX_REQUESTS, "requests"),
        (extent.largest_tokens, MAX_REQUEST_TOKENS, "tokens in a request"),
    ):
        if found > most:
            raise CallerError(
                f"{options.generator}: expected at most {most} {what}, which a trace may have, "
                f"found {found}; ask for less"
            )
    folder = os.path.dirname(os.path.abspath(options.output))
    special = os.path.exists(options.output) and not os.path.isfile(options.output)
    if options.output != "-" and not special and os.path.isdir(folder):
        free = shutil.disk_usage(folder).free
        if extent.bytes > free:
            raise CallerError(
                f"--output {options.output}: expected {extent.bytes / 1e9:,.1f} GB of free space "
                f"for {extent.requests:,} requests, found {free / 1e9:,.1f} GB; ask for less, or "
                "write to - and pack it"
            )


def _progress(options: Options, requests: int) -> AbstractContextManager[Callable[[int], None]]:
    """Progress on standard error, but not between lines that go to the same terminal."""
    if options.output == "-" and sys.stdout.isatty():
        return nullcontext(lambda done: None)
    return progress("generate", requests)


def _counted(lines: Iterable[str], report: Callable[[int], None]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number % _REPORT_EVERY == 0:
            report(number)
        yield line
