"""`hicache generate`: writes a synthetic trace in the native format."""

from functools import partial
from types import SimpleNamespace

from ..generators import GENERATORS, Generator, text
from ..terminal.output import check_outputs, write_whole


def actions() -> dict[str, SimpleNamespace]:
    """A command for each generator: its options, and what it does."""
    return {
        name: SimpleNamespace(Options=kind, SUMMARY=kind.SUMMARY, run=partial(_run, name))
        for name, kind in GENERATORS.items()
    }


def _run(name: str, options: Generator, command: str) -> int:
    check_outputs({}, output=options.output)
    write_whole(options.output, text(name, options))
    return 0
