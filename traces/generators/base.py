"""The interface of generators, and the writing of their requests as a trace.

A generator is one file in this folder with SUMMARY (one line for the help), `Options` (a record
whose fields are rows of options), `extent(options)`, which says how large the trace will be,
`sender(options)`, which says how a client sends the requests, and `records(options)`, which yields
the requests of the native format in order. The same options give the same records on every machine.
Does not define any workload.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol, cast

from hicache import registry
from sim.sending import SenderOptions
from traces.formats.base import Record
from traces.formats.native import header
from traces.terminal.options import OptionRecord

GENERATORS = "traces.generators"


class Extent(NamedTuple):
    """How large a trace will be. bytes: about. largest_tokens: at most, in one request with its
    answer."""

    requests: int
    bytes: int
    largest_tokens: int


class Generator(Protocol):
    SUMMARY: str
    Options: type[OptionRecord]

    def extent(self, options: Any) -> Extent:
        """The size of the trace, found without making it. options: a record of `Options`."""

    def sender(self, options: Any) -> SenderOptions | None:
        """How the requests are sent, where each is not sent when it arrives. options: a record of
        `Options`."""

    def records(self, options: Any) -> Iterable[Record]:
        """The requests, in order. options: a record of `Options`."""


def load(name: str) -> Generator:
    """The generator of that name. Raises CallerError that lists the generators."""
    return cast(Generator, registry.load(GENERATORS, name))


def text(name: str, generator: Generator, options: OptionRecord) -> Iterator[str]:
    """The lines of the trace. The header comes first and records how the trace was made."""
    values = {key: "inf" if value == math.inf else value for key, value in asdict(options).items()}
    made_by = {"generator": name, **dict(sorted(values.items()))}
    yield json.dumps(header(made_by, generator.sender(options))) + "\n"
    for record in generator.records(options):
        yield json.dumps(record) + "\n"
