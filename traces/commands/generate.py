"""`hicache generate`: writes a synthetic trace in the native format.

Does not define any workload; see traces/generators.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Self

from hicache.core import registry

from ..generators import base
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import write_whole
from ..terminal.parser import Formatter

SUMMARY = "write a synthetic trace in the native format"


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """own: the options of the generator."""

    generator: str
    output: str
    own: OptionRecord

    @classmethod
    def read(cls, namespace: argparse.Namespace) -> Self:
        """Separates the options of the command from those of its generator."""
        rest = argparse.Namespace(**vars(namespace))
        name, output = rest.generator, rest.output
        del rest.generator, rest.output
        return cls(name, output, base.load(name).Options.read(rest))


def add_options(parser: argparse.ArgumentParser) -> None:
    names = parser.add_subparsers(dest="generator", metavar="GENERATOR", required=True)
    for name in registry.names(base.GENERATORS):
        generator = base.load(name)
        about = generator.SUMMARY
        subparser = names.add_parser(name, help=about, description=about, formatter_class=Formatter)
        generator.add_options(subparser)
        subparser.add_argument(
            "-o", "--output", type=read.output, default="-", metavar="FILE", help="- is stdout"
        )


def run(options: Options, command: str) -> int:
    generator = base.load(options.generator)
    write_whole(options.output, base.text(options.generator, generator, options.own))
    return 0
