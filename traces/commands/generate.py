"""`hicache generate`: writes a synthetic trace in the native format."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from hicache.core.errors import CallerError

from ..formats.base import MAX_REQUEST_TOKENS, MAX_REQUESTS
from ..generators import GENERATORS, Generator, text
from ..terminal import options as read
from ..terminal.options import Declared, OptionRecord, option, read_values, rows
from ..terminal.output import check_outputs, write_whole
from ..terminal.tables import progress

_REPORT_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """own: the options of the generator."""

    generator: str
    output: str
    own: Generator


class _Command:
    """A generator as a command: its options and the file to write."""

    def __init__(self, name: str) -> None:
        self.name, self.generator = name, GENERATORS[name]
        self.SUMMARY = self.generator.SUMMARY
        self.Options, self.run = self, run

    def declared(self) -> list[Declared]:
        return [*self.generator.declared(), *rows(_Output)]

    def read(self, words: Sequence[str], prog: str, about: str, epilog: str) -> Options:
        values, _ = read_values(self.declared(), words, prog, about, epilog)
        output = values.pop("output")
        return Options(self.name, output, self.generator.made(values))


@dataclass(frozen=True)
class _Output(OptionRecord):
    output: str = option("- is stdout", *read.OUTPUT, short="-o", default="-")


def actions() -> dict[str, _Command]:
    return {name: _Command(name) for name in GENERATORS}


def run(options: Options, command: str) -> int:
    own = options.own
    check_outputs({}, output=options.output)
    requests, longest = own.extent
    for found, most, what in (
        (requests, MAX_REQUESTS, "requests"),
        (longest, MAX_REQUEST_TOKENS, "tokens in a request"),
    ):
        if found > most:
            raise CallerError(
                f"{options.generator}: expected at most {most} {what}, which a trace may have, "
                f"found {found}; ask for less"
            )
    with _progress(options, requests) as report:
        write_whole(options.output, _counted(text(options.generator, own), report))
    return 0


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
