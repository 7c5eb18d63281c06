"""The `hicache` command: finds a command by its name, runs it, and turns errors into exit codes.

Does not define commands or their options; see traces/commands, one file for each. A command is
imported only when it is asked for, so `hicache --help` imports none.
"""

from __future__ import annotations

import argparse
import errno
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import cast

from hicache.core import registry
from hicache.core.errors import CallerError, CoreBug

from .commands.base import COMMANDS, Command
from .terminal.options import OptionRecord
from .terminal.parser import Formatter, Parser
from .terminal.signals import INTERRUPTED, interruptible
from .terminal.streams import (
    check_current_folder,
    flush,
    harden_std_streams,
    print_error,
    silence_std_streams,
)

BAD_INPUT = 2
CRASH = 10
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_ABOUT = """\
Replay LLM serving traces through a tiered KV cache (device and host memory), on a
simulated accelerator or on real memory, with every decision checked. Look for bugs
in the cache.
"""

_EXAMPLES = """\
examples:
  hicache replay                                   a built-in workload, about 10 s
  hicache replay trace.jsonl --model llama-3.1-8b --hardware h100 \\
      --device-tokens 1M --host-ratio 2 --write-policy write_through
  hicache replay trace.jsonl --mode hits --page-size 512 --device-pages 5637 --json out.json
  hicache replay trace.jsonl --model gemma-3-27b --swa-tokens 64K --host-ratio 4
  hicache replay trace.jsonl --components full,mamba --mamba-states 50 --device-tokens 1M
  hicache replay trace.jsonl --check every --host-bandwidth 0.5x --limit 1000 --seed 7
  hicache generate multiturn --clients 10 --rounds 12 -o out.jsonl
  hicache generate shared-prefix -o - | hicache inspect -
  hicache inspect trace.jsonl
  hicache fuzz                                     60 s on all cores; failures are saved as tapes
  hicache shrink TAPE.jsonl -o small.jsonl --export tests/regress
  hicache explain small.jsonl

Sizes take K, M, G (thousands) or Ki, Mi, Gi (1,024s). `hicache COMMAND --help` lists the options.

exit codes:
  0 done, 2 bad input or option, 10 crash, 11 invariant violated, 12 wrong bytes, 13 hazard,
  14 no progress, 15 ranks diverge, 16 nondeterminism, 17 error of the harness, 18 state not
  reached, 19 canary not found, 130 interrupted
"""


# What an error with an exit code means, in words.
_CODES = {
    10: "the simulation found a defect",
    11: "an invariant is violated",
    12: "wrong bytes: a page does not hold what was written for it",
    13: "a hazard: nothing orders two accesses to one page",
    14: "no progress: something is left that nothing will end",
    15: "the ranks diverge",
    16: "nondeterminism: the same input gave another result",
    17: "an error of the harness; its results do not count",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Bad input never causes a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    typed = shlex.join(["hicache", *given])
    harden_std_streams()
    try:
        with interruptible():
            check_current_folder()
            command, options = parse(given)
            code = command.run(options, typed)
            flush()
            return code
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        silence_std_streams()  # the reader closed the pipe (head)
        return 0
    except CallerError as error:
        print_error(str(error))
        return BAD_INPUT
    except MemoryError:
        print_error(
            "the trace and the bookkeeping for pools this large do not fit in RAM; give smaller "
            "pools or a shorter trace"
        )
        return BAD_INPUT
    except Exception as error:
        return _failed(error, typed)


def _failed(error: Exception, typed: str) -> int:
    """Prints the error that ended a command other than bad input; returns the exit code."""
    if isinstance(error, OSError) and error.errno in _FULL:
        print_error(
            f"no space left to write the report: {error.strerror}; free some, or write it elsewhere"
        )
        return BAD_INPUT
    blamed = registry.blamed(error)
    if blamed:
        print_error(blamed)
        return BAD_INPUT
    code = getattr(error, "exit_code", None)
    if isinstance(code, int) and not isinstance(error, CoreBug):
        lines = [str(error), *getattr(error, "__notes__", ())]
        if "\nreplay: " not in lines[0]:
            lines += [f"exit code {code}: {_CODES.get(code, 'failed')}", f"replay: {typed}"]
        print_error("\n".join(lines))
        return code
    traceback.print_exception(error)
    print_error(f"this is a defect of hicache; please report it with the lines above and: {typed}")
    return CRASH


def parse(given: Sequence[str]) -> tuple[Command, OptionRecord]:
    """The command and the record of its options. Raises CallerError."""
    names = registry.names(COMMANDS)
    name = given[0] if given and given[0] in names else _no_command(given, names)
    command = cast(Command, registry.load(COMMANDS, name))
    parser = Parser(prog=f"hicache {name}", description=command.SUMMARY, formatter_class=Formatter)
    command.add_options(parser)
    return command, command.Options.read(parser.parse_args(given[1:]))


def _no_command(given: Sequence[str], names: list[str]) -> str:
    """Prints the help and exits if the help was asked for; raises CallerError otherwise.

    argparse does both, so the return value is for the type checker alone.
    """
    if given and not given[0].startswith("-"):
        raise registry.unknown("command", given[0], names)
    top = Parser(
        prog="hicache",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True
    )
    for name in names:
        commands.add_parser(name, help=registry.summary(COMMANDS, name))
    command: str = top.parse_args(given[:1]).command
    return command


if __name__ == "__main__":
    sys.exit(main())
