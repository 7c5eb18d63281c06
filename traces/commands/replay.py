"""`hicache replay`: replays a trace in either mode and prints the report.

Contains the options, and connects trace, settings and checks. Does not run a mode (see
replaying/modes), choose sizes that were not given (see replaying/settings and replaying/pools), or
define the report (see replaying/report).
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import fields, replace
from fractions import Fraction
from typing import TextIO

from hicache import models
from hicache.core import registry
from hicache.core.errors import CallerError
from invariants.watch import Watch
from sim.hardware import measured
from sim.hardware import profile as hardware
from sim.options import EngineOptions

from ..formats._open import FORMATS, described, open_trace
from ..formats.base import Trace
from ..outside.entries import entry
from ..replaying import builtin, modes
from ..replaying.options import (
    BACKBONE,
    CHECKS,
    COMPONENTS,
    MODEL,
    MODES,
    ReplayOptions,
)
from ..replaying.pools import OWN_STATES, PREFIX_TOKENS, STAND_IN_WINDOW
from ..replaying.report import print_report, print_story
from ..replaying.results import document
from ..replaying.settings import Settings, resolve
from ..replaying.story import story_on_error
from ..terminal import options as read
from ..terminal.output import check_apart, check_writable, write_json
from ..terminal.signals import INTERRUPTED

SUMMARY = "replay a trace and report hit rates, latency and a verdict"
Options = ReplayOptions


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("trace", nargs="?", metavar="TRACE", help="JSON lines, plain or gzip; - reads stdin")
    add("--format", type=read.entry(FORMATS, "auto"), default="auto", help=described())
    add(
        "--mode",
        type=read.choice(MODES),
        default="timed",
        help="timed: engine and virtual time; hits: one request at a time, no clock, exact counts",
    )
    add(
        "--limit",
        type=read.at_least(1),
        default=0,
        metavar="N",
        help="only the first N requests (default: all)",
    )
    add("--seed", type=read.at_least(0), default=0, help="seed of all random draws")
    add(
        "--check",
        type=read.choice(CHECKS),
        help="check invariants after every operation, at intervals (sampled), or not (off) "
        "(default: sampled; every for the built-in workload)",
    )
    add(
        "--json",
        type=read.name,
        metavar="FILE",
        help="also write the results to this file as JSON; - is stdout",
    )
    _add_cache(parser)
    _add_components(parser)
    _add_engine(parser)


def _add_cache(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("cache")
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
        help="host pages for each device page, 0 for no host (default: 2 in timed mode, 0 in hits "
        "mode)",
    )
    host.add_argument("--host-pages", type=read.at_least(0), metavar="N", help="host pool in pages")
    host.add_argument(
        "--host-bytes",
        type=read.at_least(1),
        metavar="B",
        help="total host memory, summed over pools and ranks",
    )
    _add_policies(group)
    add(
        "--load-threshold",
        type=read.at_least(0),
        default=1,
        metavar="PAGES",
        help="recompute instead of loading host hits shorter than this",
    )
    add(
        "--load-quota",
        type=read.at_least(0),
        default=0,
        metavar="PAGES",
        help="recompute instead of loading host hits longer than this; 0 for no limit",
    )


def _add_policies(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--write-policy",
        type=entry(registry.WRITE_POLICIES),
        default="write_through",
        metavar="POLICY",
        help=f"when pages are copied to host: {_known(registry.WRITE_POLICIES)}",
    )
    add(
        "--exclusive",
        action="store_true",
        help="a page that was loaded back gives up its host copy, so that both tiers together hold "
        "as much as one of their summed size (needs --write-policy write_back)",
    )
    add(
        "--eviction",
        type=entry(registry.EVICTION_POLICIES),
        default="lru",
        metavar="POLICY",
        help=f"eviction order: {_known(registry.EVICTION_POLICIES)}",
    )
    add(
        "--compare-eviction",
        type=entry(registry.EVICTION_POLICIES),
        metavar="POLICY",
        help="replay again with this eviction order, without checks, and print both hit rates",
    )


def _known(package: str) -> str:
    return f"{', '.join(registry.spellings(package))}, or path.py:Name"


def _add_components(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group(
        "components (pools besides full attention's; --model sets all of these)"
    ).add_argument
    add(
        "--components",
        type=_components,
        metavar="LIST",
        help=f"some of {', '.join(COMPONENTS)}, separated by commas (default: the model's); "
        f"without --model, the layers of {MODEL} are divided among them in turn",
    )
    at_least_1 = read.at_least(1)
    add(
        "--swa-window",
        type=at_least_1,
        metavar="TOKENS",
        help=f"window of swa (default: the model's, {STAND_IN_WINDOW:,} without a model)",
    )
    add(
        "--swa-tokens",
        type=at_least_1,
        metavar="N",
        help="device pool of swa in tokens (default: a window for each running request, one chunk, "
        f"and a window per {PREFIX_TOKENS:,} tokens of full; at most as many as full)",
    )
    add(
        "--mamba-states",
        type=at_least_1,
        metavar="N",
        help=f"device pool of mamba in states (default: {OWN_STATES} for each running request and "
        f"one per {PREFIX_TOKENS:,} tokens of full)",
    )
    add(
        "--mamba-interval",
        type=at_least_1,
        metavar="TOKENS",
        help="distance between stored states, a multiple of the page size (default: the model's, "
        "rounded up to pages; one page without a model)",
    )
    add(
        "--mamba-states-per-path",
        type=read.at_least(0),
        default=0,
        metavar="N",
        help="most states kept on one path of the tree; 0 for no limit",
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    defaults = {field.name: field.default for field in fields(EngineOptions)}
    group = parser.add_argument_group(
        "model, hardware and engine (sizes in both modes, times in timed)"
    )
    add = group.add_argument
    add(
        "--model",
        type=_model,
        help=f"a name of `hicache models` or its beginning, or a JSON file with a model (default: "
        f"{MODEL})",
    )
    add(
        "--hardware",
        type=_hardware,
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
        type=entry(registry.SCHEDULERS),
        default=defaults["order"],
        metavar="ORDER",
        help=f"who is admitted next: {_known(registry.SCHEDULERS)}",
    )
    add(
        "--token-budget",
        type=read.at_least(1),
        default=defaults["token_budget"],
        metavar="N",
        help="tokens in one forward pass",
    )
    add(
        "--max-running",
        type=read.at_least(1),
        default=defaults["max_running"],
        metavar="N",
        help="requests running at once",
    )


def _components(text: str) -> tuple[str, ...]:
    """Parses a list such as full,mamba; returns it in the project's order."""
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in COMPONENTS]
    if wrong or BACKBONE not in names or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"expected {BACKBONE}, and each of {', '.join(COMPONENTS[1:])} at most once, "
            f"separated by commas, found {text!r}"
        )
    return tuple(name for name in COMPONENTS if name in names)


def _hardware(text: str) -> str:
    """The name of a profile, or the path of a measured one."""
    return text if measured.is_path(text) else read.choice(hardware.names())(text)


def _model(text: str) -> str:
    """The name of a model, completed if its beginning is unique, or the path of a JSON file."""
    return text if models.is_path(text) else read.choice(models.names())(models.spelled(text))


def run(options: ReplayOptions, command: str) -> int:
    """Returns the exit code. command: what the user typed, shown with a violation."""
    started = time.perf_counter()
    _check_files(options)
    # with the document on standard output, everything else goes to standard error
    out = sys.stderr if options.json == "-" else sys.stdout
    options, trace = _opened(options, out)
    settings, paged = resolve(options, trace)
    _check_sizes(trace, settings, paged.knows_output)
    watch = None
    if settings.check != "off":
        watch = Watch(settings.check, replay_command=command)
    with story_on_error(watch):
        result = modes.run(trace, paged, settings, watch, started)
    if options.compare_eviction and not result.interrupted:
        order = options.compare_eviction
        other = modes.run(trace, paged, _with_eviction(settings, order), None, time.perf_counter())
        result = replace(result, compared=(order, other.account.whole(), other.account.steady()))
    print_report(trace, settings, result, out)
    if result.interrupted:
        return INTERRUPTED
    if options.json:
        write_json(options.json, document(trace, settings, result))
    return 0


def _check_files(options: ReplayOptions) -> None:
    """Raises CallerError, before any work, if the document cannot be written.

    The document must not replace a file that the command reads.
    """
    model = options.model if options.model and models.is_path(options.model) else None
    profile = options.hardware if measured.is_path(options.hardware) else None
    check_apart(trace=options.trace, model=model, hardware=profile, json=options.json)
    if options.json:
        check_writable(options.json)


def _opened(options: ReplayOptions, out: TextIO) -> tuple[ReplayOptions, Trace]:
    """The options and the trace; the built-in trace and its defaults if none was named."""
    if options.trace is not None:
        return options, open_trace(options.trace, options.format, options.limit)
    print_story(builtin.STORY, out)
    return builtin.with_defaults(options), builtin.builtin_trace(options.limit)


def _check_sizes(trace: Trace, settings: Settings, knows_output: bool) -> None:
    """Raises CallerError for a request larger than the device pool; it would wait forever."""
    size, pages = settings.core.page_size, settings.core.device_pages[0]
    with_output = settings.mode == "timed" or knows_output
    for job in trace.jobs:
        length = job.input_length + (job.output_length - 1 if with_output else 0)
        if length > pages * size:
            needed = -(-length // size)
            raise CallerError(
                f"{trace.path}:{trace.line_numbers[job.index]}: expected a request of at most "
                f"{pages} pages of {size} tokens (the device pool of full), found one of {needed} "
                f"pages ({length} tokens); give --device-pages {needed} or more"
            )


def _with_eviction(settings: Settings, order: str) -> Settings:
    """The same settings with another eviction order, and without checks."""
    return replace(settings, check="off", core=replace(settings.core, eviction_policy=order))
