"""What a generator is, and how its records become a trace.

A generator is one file in this folder with SUMMARY (one line for the help), `add_options(parser)`
and `records(options)`, which yields the requests of the native format in order. The same options
give the same records on every machine. Must not live here: any workload.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from typing import Protocol

from traces.formats.base import Record
from traces.formats.native import header


class Generator(Protocol):
    SUMMARY: str

    def add_options(self, parser: argparse.ArgumentParser) -> None: ...

    def records(self, options: argparse.Namespace) -> Iterable[Record]: ...


def text(name: str, generator: Generator, options: argparse.Namespace) -> Iterator[str]:
    """The lines of the trace, the header first, which says how the trace was made."""
    made = {"generator": name, **dict(sorted(vars(options).items()))}
    yield json.dumps(header(made)) + "\n"
    for record in generator.records(options):
        yield json.dumps(record) + "\n"


def defaults(generator: Generator) -> argparse.Namespace:
    """The options of a generator when none is given."""
    parser = argparse.ArgumentParser()
    generator.add_options(parser)
    return parser.parse_args([])
