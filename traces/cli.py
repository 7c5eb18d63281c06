"""The `hicache` command: finds a command by its name, runs it, and turns errors into exit codes.

Does not define commands or their options; see traces/commands, one file for each. A command is
imported only when it is asked for, so `hicache --help` imports none.
"""

from __future__ import annotations

import argparse
import errno
import sys
import traceback
from collections.abc import Callable, Sequence
from textwrap import fill
from typing import cast

from hicache import registry
from hicache.compiled import finder
from hicache.core.errors import CallerError, CoreBug
from hicache.version import VERSION

from .commands.base import COMMANDS, Command
from .terminal.options import OptionRecord
from .terminal.rows import Formatter, Parser, add_rows, option_names, rows
from .terminal.signals import INTERRUPTED, interruptible
from .terminal.streams import (
    check_current_folder,
    escaped_std_streams,
    flush,
    harden_std_streams,
    print_error,
    print_failure,
    silence_std_streams,
)
from .terminal.text import command_line, unforged

BAD_INPUT = 2
_MANY = 40  # options
CRASH = 10
_TOP = ("-h", "--help", "--version")
_WIDTH = 79
# The groups of commands, and those that are listed first in their group.
_GROUPS = {
    "plan": "how much memory, which options",
    "look": "look into a trace, a replay, a model",
    "trust": "trust the cache: look for bugs, and for wrong predictions",
    "use": "use the cache, and look into its stores",
    "devices": "real devices",
}
_FIRST = ("size", "replay", "fuzz")
# What does the work of a command that is no more.
_GONE = {
    "host": "hicache sweep --host-bytes 0,256GB,1TB",
    "mutants": "python -m pytest tests/planted",
    "force": "hicache twin, whose hazard detector finds missing waits",
    "watch": "hicache replay, which reads the request logs of vLLM and SGLang",
    "fidelity": "python -m sim.fit, which fits the constants",
    "check-device": "pytest tests/devices tests/contract, in a clone",
    "gpu-check": "make gpu-check, in a clone",
    "formats": "hicache convert --formats",
    "shrink": "hicache fuzz, which shrinks each failure",
    "explain": "hicache fuzz --replay TAPE",
    "chat": "hicache.transformers.PrefixCache in a program",
    "prove": "pytest tests/transformers, in a clone",
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_ABOUT = """\
Replay LLM serving traces through a tiered KV cache (device and host memory), on
a simulated accelerator or on real memory, with every decision checked. Look for
bugs in the cache.
"""

_EXAMPLES = """\
examples:
  hicache replay                        a built-in workload, about 10 s
  hicache replay trace.jsonl --model llama-3.1-8b --hardware h100 \\
      --device-tokens 1M --host-ratio 2 --write-policy write_through
  hicache replay trace.jsonl --mode hits --page-size 512 \\
      --device-pages 5637 --json out.json
  hicache replay trace.jsonl --model gemma-3-27b --hardware h200 \\
      --swa-tokens 64K
  hicache replay trace.jsonl --components full,mamba --mamba-states 50 \\
      --device-tokens 1M
  hicache replay trace.jsonl --check every --host-bandwidth 0.5x --limit 1000 \\
      --seed 7
  hicache replay trace.jsonl --requests out.jsonl
  hicache replay trace.jsonl --why 7
  hicache size trace.jsonl --slo ttft=2s,tpot=50ms -o report.html
  hicache sweep trace.jsonl --host-bytes 0,256GB,1TB --picture picture.svg
  hicache sweep trace.jsonl --host-ratio 0,1,2 --write-policy all -o s.jsonl
  hicache generate multiturn --clients 10 --rounds 12 -o out.jsonl
  hicache generate shared-prefix -o - | hicache inspect -
  hicache inspect trace.jsonl
  hicache fuzz                          60 s on all cores; failures become tapes

Sizes take K, M, G, T (thousands) or Ki, Mi, Gi, Ti (1,024s); those in bytes
also with a B: 512GB.
`hicache COMMAND --help` lists the options, `hicache convert --formats`
the formats of traces.

exit codes:
  0 done, 2 bad input or option, 10 crash, 11 invariant violated,
  12 wrong bytes, 13 hazard, 14 no progress, 15 ranks diverge,
  16 nondeterminism, 17 error of the harness, 130 interrupted
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
    harden_std_streams()
    with escaped_std_streams():
        return _run(given, command_line(["hicache", *given]))


def _run(given: Sequence[str], typed: str) -> int:
    """Runs the command; turns what it raises into a message and an exit code."""
    options: OptionRecord | None = None
    try:
        check_current_folder()
        command, options = parse(given)
        with interruptible():
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
        print_error(_with_option(str(error), given))
        return BAD_INPUT
    except MemoryError:
        print_error(_no_memory(given, options))
        return BAD_INPUT
    except Exception as error:
        return _failed(error, typed)


def _with_option(message: str, given: Sequence[str]) -> str:
    """The message with `page_size: ` at its beginning as `--page-size: `, the name that the user
    knows, where the command has that option."""
    field, colon, _ = message.partition(": ")
    if not colon or not field.isidentifier() or given[0] not in registry.names(COMMANDS):
        return message
    option = f"--{field.replace('_', '-')}"
    known = option in option_names(_loaded(given[0])[1])
    return f"{option}{message[len(field) :]}" if known else message


def _no_memory(given: Sequence[str], options: OptionRecord | None) -> str:
    """The error of a command that ran out of memory, with an advice that its options allow."""
    advice = {"device_pages": "give smaller pools", "limit": "read fewer requests (--limit)"}
    advice |= {"jobs": "run fewer at once (--jobs)"}
    ways = [how for field, how in advice.items() if hasattr(options, field)]
    return (
        f"{given[0]}: expected its input and its bookkeeping to fit in RAM, "
        f"found that no more is free; {', or '.join(ways) or 'give a smaller input'}"
    )


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
        print_failure("\n".join(lines))
        return code
    print(unforged("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    print_error(f"this is a defect of hicache; please report it with the lines above and: {typed}")
    return CRASH


def parse(given: Sequence[str]) -> tuple[Command, OptionRecord]:
    """The command and the record of its options. Raises CallerError."""
    names = registry.names(COMMANDS)
    name = given[0] if given and given[0] in names else _no_command(given, names)
    command, parser = _loaded(name)
    return command, command.Options.read(parser.parse_args(given[1:]))


def _loaded(name: str) -> tuple[Command, Parser]:
    command = cast(Command, registry.load(COMMANDS, name))
    parser = Parser(prog=f"hicache {name}", description=command.SUMMARY, formatter_class=Formatter)
    add_rows(parser, rows(command.Options))
    more: Callable[[argparse.ArgumentParser], None] | None = getattr(command, "add_options", None)
    if more is not None:
        more(parser)
    actions = parser._actions
    if len(actions) > _MANY:  # the list below has them all
        given = [f" [{one.metavar}]" for one in actions if not one.option_strings]
        parser.usage = f"{parser.prog}{''.join(given)} [option ...]"
    return command, parser


def _no_command(given: Sequence[str], names: list[str]) -> str:
    """Prints the help and exits if the help was asked for; raises CallerError otherwise.

    argparse does both, so the return value is for the type checker alone.
    """
    if given and given[0] in _GONE:
        raise CallerError(f"{given[0]}: no longer a command; use {_GONE[given[0]]}")
    if given and given[0] not in _TOP:
        kind, known = ("option", _TOP) if given[0].startswith("-") else ("command", names)
        raise registry.unknown(kind, given[0], known)
    top = Parser(
        prog="hicache",
        usage="hicache COMMAND [option ...]",
        description=_ABOUT,
        epilog=f"{_commands(names)}\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hicache {VERSION} ({finder.which()})")
    top.add_argument("command", metavar="COMMAND", help=argparse.SUPPRESS)
    command: str = top.parse_args(given[:1]).command
    return command


def _commands(names: Sequence[str]) -> str:
    """The commands and what each does, by what people want."""
    of_group: dict[str, list[str]] = {group: [] for group in _GROUPS}
    for name in sorted(names, key=lambda name: (name not in _FIRST, name)):
        of_group[registry.constant(COMMANDS, name, "GROUP")].append(name)
    lines = []
    for group, title in _GROUPS.items():
        lines.append(f"{title}:")
        for name in of_group[group]:
            said = registry.summary(COMMANDS, name)
            lines.append(fill(f"  {name:<14}{said}", _WIDTH, subsequent_indent=" " * 16))
        lines.append("")
    return "\n".join(lines)
