"""The `hicache` command: finds a command by its name, runs it, and turns errors into exit codes.

A command is a file in traces/commands with `Options` (a frozen record, see terminal/options) and
`run(options, command line) -> exit code`; one with several has `actions()` instead, which are such
files or like them. It is imported only when it is asked for, so `hicache --help` imports none.
"""

import errno
import gc
import sys
import traceback
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, NoReturn, Protocol

from hicache import registry
from hicache.compiled import finder
from hicache.core.errors import CallerError, CoreBug
from hicache.version import VERSION

from .terminal.options import OptionRecord
from .terminal.signals import INTERRUPTED, interruptible
from .terminal.streams import (
    command_line,
    flush,
    hardened_std_streams,
    print_error,
    print_failure,
    unforged,
)

BAD_INPUT = 2
CRASH = 10
_TOP = ("-h", "--help", "--version")
# By what people want: each command, and what it does.
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "how much memory, which options": {
        "size": "from a trace to a decision: which machine to buy, in one HTML report",
        "compare": "say what changed between replays, and why, from their documents",
        "curve": "print the hit rate against capacity: exact LRU, other policies and the optimum",
        "report": "make the HTML report again from its document, or one report of several",
        "sweep": "replay a trace at every point of a grid of options, resumable, on all cores",
    },
    "look into a trace, a replay, a model": {
        "replay": "replay a trace and report hit rates, latency and what limits them",
        "convert": "write a trace of any supported format in the native one",
        "generate": "write a synthetic trace in the native format",
        "inspect": "print statistics of a trace and its LRU hit-rate curve",
        "models": "list the described models: pools, bytes per token and page, sources",
    },
    "trust the cache: look for bugs": {
        "fuzz": "random operations on this cache, SGLang's, vLLM's or yours, all laws after each",
    },
    "stores and real devices": {
        "store": "check, list or clean up a store of pages",
        "calibrate": "measure the copies and kernels of a device, and write a hardware profile",
        "twin": "run a trace on a device and on the simulator, and compare them",
    },
}
SUMMARIES = {name: about for group in COMMANDS.values() for name, about in group.items()}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# What an error with an exit code means.
_CODES = {
    10: "crash",
    11: "invariant violated",
    12: "wrong bytes",
    13: "hazard",
    14: "no progress",
    15: "ranks diverge",
    16: "nondeterminism",
    17: "error of the harness",
}
_ABOUT = """\
Replay LLM serving traces through a tiered KV cache (device and host memory), on
a simulated accelerator or on real memory, with every decision checked. Look for
bugs in the cache.
"""
_EXAMPLES = """\
examples:
  hicache replay                        a built-in workload, about 10 s
  hicache replay trace.jsonl --model llama-3.1-8b --host-ratio 2
  hicache replay trace.jsonl --mode hits --page-size 512 --json out.json
  hicache replay trace.jsonl --why 7
  hicache size trace.jsonl --slo ttft=2s,tpot=50ms -o report.html
  hicache sweep trace.jsonl --host-bytes 0,256GB,1TB --picture picture.svg
  hicache generate shared-prefix -o - | hicache inspect -
  hicache fuzz                          60 s on all cores; failures become files

Sizes take K, M, G, T (thousands) or Ki, Mi, Gi, Ti (1,024s); those in bytes
also with a B: 512GB.
`hicache COMMAND --help` lists the options, `hicache convert --formats`
the formats of traces.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Bad input never causes a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with hardened_std_streams():
        return _run(words, command_line(["hicache", *words]))


class Command(Protocol):
    """A module with a command, or with one action of a command."""

    Options: type[OptionRecord]

    def run(self, options: Any, command: str) -> int:
        """Returns the exit code. command: the command line as the user typed it."""


def _run(words: Sequence[str], typed: str) -> int:
    """Runs the command; turns what it raises into a message and an exit code."""
    command: Command | None = None
    try:
        command, options = parse(words)
        if not gc.isenabled():  # see start: modules live until the end
            gc.freeze()
            gc.enable()
        with interruptible():
            code = command.run(options, typed)
            flush()
        return code
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED
    except CallerError as error:
        print_error(_with_option(str(error), command))
        return BAD_INPUT
    except MemoryError:
        print_error(
            f"{words[0]}: expected its input and its bookkeeping to fit in RAM, found that no more "
            "is free; give smaller pools, read fewer requests (--limit) or run fewer at once "
            "(--jobs)"
        )
        return BAD_INPUT
    except Exception as error:
        return _failed(error, typed)


def _with_option(message: str, command: Command | None) -> str:
    """The message with `page_size: ` at its beginning as `--page-size: `, the name that the user
    knows, where the command has that option."""
    field, colon, _ = message.partition(": ")
    if not colon or command is None:
        return message
    declared = {option.name: option.flag for option in command.Options.declared()}
    return f"{declared[field]}{message[len(field) :]}" if field in declared else message


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


def parse(words: Sequence[str]) -> tuple[Command, OptionRecord]:
    """The command and the record of its options. Prints the help and exits if it is asked for.
    Raises CallerError."""
    if [*words] == ["--version"]:
        print(f"hicache {VERSION} ({finder.which()})")
        raise SystemExit(0)
    name, *rest = words or [""]
    if name not in SUMMARIES:
        codes = ", ".join(f"{code} {text}" for code, text in _CODES.items())
        codes = fill(f"exit codes: 0 done, 2 bad input or option, {codes}, 130 interrupted", 79)
        _list("hicache", "COMMAND", words, COMMANDS, _ABOUT, f"{_EXAMPLES}\n{codes}\n")
    command: Any = registry.load("traces.commands", name)
    prog, about = f"hicache {name}", SUMMARIES[name]
    if hasattr(command, "actions"):
        actions = command.actions()
        if not rest or rest[0] not in actions:
            listed = {"actions": {action: each.SUMMARY for action, each in actions.items()}}
            _list(prog, "ACTION", rest, listed, about)
        action, *rest = rest
        command = actions[action]
        prog, about = f"{prog} {action}", command.SUMMARY
    return command, command.Options.read(rest, prog, about, getattr(command, "EPILOG", ""))


def _list(
    prog: str,
    kind: str,
    words: Sequence[str],
    groups: Mapping[str, Mapping[str, str]],
    about: str,
    epilog: str = "",
) -> NoReturn:
    """Prints the names and what each does, if that is asked for, and exits. Raises CallerError for
    a name that is none of them."""
    names = [name for group in groups.values() for name in group]
    if not words:
        raise CallerError(f"expected {kind}, one of {', '.join(names)} (see {prog} --help)")
    if words[0] not in _TOP:
        if words[0].startswith("-"):
            raise registry.unknown("option", words[0], _TOP)
        raise registry.unknown(kind.lower(), words[0], names)
    print(f"Usage: {prog} {kind} [option ...]\n\n{about.strip()}\n")
    width = max(11, *(len(name) + 2 for name in names))
    for title, group in groups.items():
        print(f"{title}:")
        for name, does in group.items():
            print(fill(f"  {name:<{width}}{does}", 79, subsequent_indent=" " * (width + 2)))
        print()
    print(epilog, end="")
    raise SystemExit(0)
