"""`hicache peers`: engines that people run, under this harness. Does not define any action; see
traces/peers."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Self

from hicache import registry

from ..terminal.options import OptionRecord
from ..terminal.rows import Formatter, add_rows, rows

SUMMARY = "run the caches of SGLang and vLLM under this harness"
GROUP = "trust"
_ACTIONS = "traces.peers"  # each is a module as a command is


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """own: the options of the action."""

    action: str
    own: OptionRecord

    @classmethod
    def read(cls, namespace: argparse.Namespace) -> Self:
        """Separates the name of the action from its options."""
        rest = argparse.Namespace(**vars(namespace))
        action = rest.action
        del rest.action
        return cls(action, registry.load(_ACTIONS, action).Options.read(rest))


def add_options(parser: argparse.ArgumentParser) -> None:
    names = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name in registry.names(_ACTIONS):
        action = registry.load(_ACTIONS, name)
        about = action.SUMMARY
        parser = names.add_parser(name, help=about, description=about, formatter_class=Formatter)
        add_rows(parser, rows(action.Options))


def run(options: Options, command: str) -> int:
    code: int = registry.load(_ACTIONS, options.action).run(options.own, command)
    return code
