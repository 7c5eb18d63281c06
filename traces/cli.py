"""The `hicache` command: which options exist, and how a failure becomes one line and a code.

Lives here: the commands, and the options of those that replay. Must not live here: what a command
does.
"""

from __future__ import annotations

import argparse
import errno
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction

from hicache import registry
from hicache.core.errors import CallerError, CoreBug, HicacheError
from sim.engine.engine import EngineOptions
from sim.engine.waiting import ORDERS
from sim.hardware import profile as hardware

from .commands import calibrate, check_device, gpu_check, twin
from .commands import explain as explain_command
from .commands import force as force_command
from .commands import fuzz as fuzz_command
from .commands import models as models_command
from .commands import mutants as mutants_command
from .commands import shrink as shrink_command
from .commands.inspect import as_document, inspect, print_inspection
from .commands.replay import INTERRUPTED, replay
from .formats._open import FORMATS, open_trace
from .generators import base as generators
from .replaying import pools
from .replaying.builtin import GENERATORS, load_generator
from .replaying.results import write_json
from .replaying.settings import CHECKS, MODES, eviction_policies, write_policies
from .terminal import options as read
from .terminal.output import check_writable, write_whole
from .terminal.signals import interruptible
from .terminal.streams import check_folder_is_there, complain, flush, hush, make_patient

BAD_INPUT = 2
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_ABOUT = """\
Replay LLM serving traces through a hierarchical KV cache (device and host memory)
on a simulated accelerator or on real memory, with every invariant checked on the
way; and hunt for bugs in it.
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
  hicache fuzz                                     60 s on every core; failures become tapes
  hicache shrink TAPE.jsonl -o small.jsonl --export tests/regress
  hicache explain small.jsonl

Sizes take K, M, G (thousands) or Ki, Mi, Gi (1,024s). `hicache COMMAND --help` has the rest.

exit codes:
  0 done, 2 bad input or option, 10 crash, 11 invariant violated, 12 wrong bytes, 13 hazard,
  14 no progress, 15 ranks diverge, 16 nondeterminism, 17 the harness itself, 18 a state not
  reached, 19 a canary that survived, 130 interrupted
"""

_LIMIT = "only the first N requests (default: all)"


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default of an option that has one, unless its help says it in words."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        said = action.default in (None, False, ()) or "(default: " in (action.help or "")
        return action.help if said else super()._get_help_string(action)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. Never a traceback for a fault of the input."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    make_patient()
    try:
        check_folder_is_there()
        options = parser().parse_args(given)
        with interruptible():
            code = _COMMANDS[options.command](options, shlex.join(["hicache", *given]))
            flush()
            return code
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        hush()  # the reader went away (head)
        return 0
    except OSError as error:
        if error.errno not in _FULL:
            raise
        complain(
            f"expected room for what is said, found: {error.strerror}; free some, or send it "
            "elsewhere"
        )
        return BAD_INPUT
    except CallerError as error:
        complain(str(error))
        return BAD_INPUT
    except MemoryError:
        complain(
            "expected books of the pools to fit this machine's memory, and they do not; give "
            "smaller pools"
        )
        return BAD_INPUT
    except CoreBug as error:
        traceback.print_exc()  # a defect of ours: whoever mends it needs the place
        return error.exit_code
    except (HicacheError, AssertionError) as error:
        code = getattr(error, "exit_code", None)
        if not isinstance(code, int):
            raise
        complain(str(error))
        return code


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = read.Parser(
        prog="hicache",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True
    )
    _add_replay(commands)
    _add_generate(commands)
    _add_inspect(commands)
    check_device.add_options(_sub(commands, "check-device", check_device.SUMMARY))
    models_command.add_options(_sub(commands, "models", models_command.SUMMARY))
    calibrate.add_options(_sub(commands, "calibrate", calibrate.SUMMARY))
    twin.add_options(_sub(commands, "twin", twin.SUMMARY))
    force_command.add_options(_sub(commands, "force", force_command.SUMMARY))
    fuzz_command.add_options(_sub(commands, "fuzz", fuzz_command.SUMMARY))
    shrink_command.add_options(_sub(commands, "shrink", shrink_command.SUMMARY))
    explain_command.add_options(_sub(commands, "explain", explain_command.SUMMARY))
    gpu_check.add_options(_sub(commands, "gpu-check", gpu_check.SUMMARY))
    mutants_command.add_options(_sub(commands, "mutants", mutants_command.SUMMARY))
    return top


def _sub(commands: argparse._SubParsersAction, name: str, about: str) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    made = commands.add_parser(name, help=about, description=about, formatter_class=_Formatter)
    assert isinstance(made, argparse.ArgumentParser)
    return made


def _add_replay(commands: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    made = _sub(commands, "replay", "replay a trace and report hit rates, latency and a verdict")
    add = made.add_argument
    add("trace", nargs="?", metavar="TRACE", help="JSON lines, plain or gzip; - reads stdin")
    add("--format", type=read.entry(FORMATS, "auto"), default="auto", help=_formats())
    add(
        "--mode",
        type=read.choice(MODES),
        default="timed",
        help="timed: engine and virtual time; hits: one request at a time, no clock, exact counts",
    )
    add("--limit", type=read.at_least(1), default=0, metavar="N", help=_LIMIT)
    add("--seed", type=read.at_least(0), default=0, help="root of every random draw")
    add(
        "--check",
        type=read.choice(CHECKS),
        help="invariants after every operation, sampled at intervals, or off (default: sampled; "
        "every for the built-in workload)",
    )
    add("--json", metavar="FILE", help="write the results there, too; - is stdout")
    _add_cache(made)
    pools.add_options(made)
    _add_engine(made)


def _add_cache(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("cache")
    add = group.add_argument
    add("--page-size", type=read.at_least(1), default=64, metavar="TOKENS", help="tokens per page")
    device = group.add_mutually_exclusive_group()
    device.add_argument(
        "--device-tokens",
        type=read.at_least(1),
        metavar="N",
        help="device pool in tokens (default: 90%% of the hardware's memory less the weights)",
    )
    device.add_argument(
        "--device-pages",
        type=read.device_pages,
        metavar="N",
        help="device pool in pages, or unbounded",
    )
    host = group.add_mutually_exclusive_group()
    host.add_argument(
        "--host-ratio",
        type=read.ratio,
        metavar="R",
        help="host pools over device pools, 0 for none (default: 2 timed, 0 in hits mode)",
    )
    host.add_argument("--host-pages", type=read.at_least(0), metavar="N", help="host pool in pages")
    host.add_argument(
        "--host-bytes",
        type=read.at_least(1),
        metavar="B",
        help="host memory in all, every pool of every one of --tp ranks together",
    )
    add(
        "--write-policy",
        type=read.choice(write_policies()),
        default="write_through",
        help=f"when pages are copied to host: {', '.join(write_policies())}",
    )
    add(
        "--eviction",
        type=read.choice(eviction_policies()),
        default="lru",
        help=f"what goes first: {', '.join(eviction_policies())} (a hit refreshes its whole path)",
    )
    add(
        "--compare-eviction",
        type=read.choice(eviction_policies()),
        metavar="ORDER",
        help="replay again in this order, unchecked, and print both hit rates",
    )
    add(
        "--load-threshold",
        type=read.at_least(0),
        default=1,
        metavar="PAGES",
        help="compute host hits shorter than this again instead of loading them",
    )
    add(
        "--load-quota",
        type=read.at_least(0),
        default=0,
        metavar="PAGES",
        help="compute host hits longer than this again; 0 for no limit",
    )


def _add_engine(made: argparse.ArgumentParser) -> None:
    defaults = {field.name: field.default for field in fields(EngineOptions)}
    group = made.add_argument_group(
        "model, hardware and engine (sizes in both modes, times in timed)"
    )
    add = group.add_argument
    add(
        "--model",
        type=read.model_name,
        help="as `hicache models` lists them, their first words, or a JSON file of one (default: "
        f"{pools.MODEL})",
    )
    add(
        "--hardware",
        type=read.hardware_name,
        default="h100",
        help=f"{', '.join(hardware.names())}, or a file that calibrate wrote",
    )
    add(
        "--tp",
        type=read.at_least(1),
        default=1,
        metavar="N",
        help="accelerators that share the model",
    )
    add(
        "--host-bandwidth",
        type=read.bandwidth,
        default=read.Bandwidth(Fraction(1)),
        metavar="B",
        help="host link: a multiple of the profile's (0.5x) or bytes per second (50GB)",
    )
    add(
        "--scheduler",
        type=read.choice(ORDERS),
        default=defaults["order"],
        help=f"admission order: {', '.join(ORDERS)}",
    )
    add(
        "--token-budget",
        type=read.at_least(1),
        default=defaults["token_budget"],
        metavar="N",
        help="tokens of one forward pass",
    )
    add(
        "--max-running",
        type=read.at_least(1),
        default=defaults["max_running"],
        metavar="N",
        help="requests admitted at once",
    )


def _add_generate(commands: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    made = _sub(commands, "generate", "write a synthetic trace in the native format")
    names = made.add_subparsers(dest="generator", metavar="GENERATOR", required=True)
    for name in registry.names(GENERATORS):
        generator = load_generator(name)
        one = _sub(names, name, generator.SUMMARY)
        generator.add_options(one)
        one.add_argument("-o", "--output", default="-", metavar="FILE", help="- is stdout")


def _add_inspect(commands: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    made = _sub(commands, "inspect", "statistics of a trace and its LRU hit-rate curve")
    add = made.add_argument
    add("trace", metavar="TRACE", help="JSON lines, plain or gzip; - reads stdin")
    add("--format", type=read.entry(FORMATS, "auto"), default="auto", help=_formats())
    add("--limit", type=read.at_least(1), default=0, metavar="N", help=_LIMIT)
    add(
        "--page-size",
        type=read.at_least(1),
        default=0,
        metavar="TOKENS",
        help="tokens per page (default: the trace's block size, or 64)",
    )
    add("--json", metavar="FILE", help="write the statistics there, too; - is stdout")


def _formats() -> str:
    return "; ".join(
        f"{name}: {registry.load(FORMATS, name).SUMMARY}" for name in registry.names(FORMATS)
    )


def _generate(options: argparse.Namespace, command: str) -> int:
    generator = load_generator(options.generator)
    own = {name: getattr(options, name) for name in vars(generators.defaults(generator))}
    write_whole(
        options.output,
        generators.text(options.generator, generator, argparse.Namespace(**own)),
    )
    return 0


def _inspect(options: argparse.Namespace, command: str) -> int:
    if options.json:
        check_writable(options.json)
    trace = open_trace(options.trace, options.format, options.limit)
    found = inspect(trace, options.page_size or trace.block_size or 64)
    print_inspection(found, sys.stderr if options.json == "-" else sys.stdout)
    if options.json:
        write_json(options.json, as_document(found))
    return 0


_COMMANDS = {
    "replay": replay,
    "generate": _generate,
    "inspect": _inspect,
    "models": models_command.show,
    "check-device": check_device.check_device,
    "calibrate": calibrate.calibrate,
    "twin": twin.twin,
    "force": force_command.force,
    "fuzz": fuzz_command.fuzz,
    "shrink": shrink_command.shrink,
    "explain": explain_command.explain,
    "gpu-check": gpu_check.gpu_check,
    "mutants": mutants_command.mutants,
}


if __name__ == "__main__":
    sys.exit(main())
