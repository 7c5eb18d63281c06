"""What a replay prints and writes at its end: the report and the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TextIO, TypeAlias

from msgspec.json import encode
from msgspec.structs import replace

from hicache.core.errors import CallerError

from ..formats.base import Paged, Trace
from ..outside import entries
from ..replaying.config import ReplayConfig
from ..replaying.options import ReplayOptions
from ..replaying.run import Run
from ..replaying.timeline import timeline
from ..results.record import Result, document
from ..terminal.output import as_json, check_outputs, write_all
from ..terminal.streams import ignore_broken_pipe, on_one_screen, print_error
from ..terminal.tables import print_sentences
from . import timestamps
from .head import head
from .limits import limit_of, load_of_run
from .report import print_report, sentence
from .results import requests_of, result_of

File: TypeAlias = tuple[str, Iterable[str]]


def check_files(options: ReplayOptions, **outputs: str | None) -> None:
    """Raises CallerError, before any work, if an output cannot be written.

    It must not replace a file that the command reads. outputs: by option; None if not asked for.
    """
    if list(outputs.values()).count("-") > 1:
        names = [f"--{name}" for name, path in outputs.items() if path == "-"]
        raise CallerError(
            f"{names[1]}: expected a file, since {names[0]} has stdout, found -; name one"
        )
    check_outputs({**options.files, **entries.files()}, **outputs)


def check_served(options: ReplayOptions, trace: Trace, settings: ReplayConfig) -> None:
    """Raises CallerError if the request of `--why` is not in the trace, or is left out."""
    if options.why is None:
        return
    whole = (options.json, options.requests, options.html, options.timeline)
    if any(whole):
        raise CallerError(
            "--why: expected no --json, --requests, --html or --timeline, which belong to a whole "
            "replay, found one; give either"
        )
    if options.why >= len(trace.jobs):
        raise CallerError(
            f"--why: expected a request from 0 to {len(trace.jobs) - 1}, found {options.why}; the "
            "first request of the trace is 0"
        )
    if options.why in settings.skipped.requests:
        raise CallerError(
            f"--why: expected a request that is served, found {options.why}, which is too large "
            "for the device and skipped; name another, or enlarge the device"
        )


def warn(trace: Trace, settings: ReplayConfig) -> list[str]:
    """Prints the warnings about the trace, before the run that they may spare; returns them."""
    timed = settings.mode == "timed"
    warnings = [*trace.notes]
    if not trace.identity:
        warnings.append(
            f"{trace.format} has lengths only: each prompt counts as unique, so the times are "
            "those of a cache that never hits, and hit rates say nothing."
        )
    warnings += timestamps.warnings(trace.jobs, settings.speed, settings.load) if timed else []
    for warning in warnings:
        print_error(f"warning: {warning}")
    return warnings


def repeat_warnings(warnings: list[str], out: TextIO) -> None:
    """Prints the warnings with the report, unless `warn` showed them on the same screen."""
    if warnings and not on_one_screen(out):
        print_sentences("Warnings", warnings, out)


def finish(
    trace: Trace,
    paged: Paged,
    settings: ReplayConfig,
    run: Run,
    options: ReplayOptions,
    command: str,
    warnings: list[str],
    out: TextIO,
    page: Callable[[Result, Sequence[str]], str],
) -> None:
    """Prints the report and writes the files that were asked for, each whole or not at all.

    page: the HTML report, from the result and its first sentences.
    """
    result = result_of(trace, settings, run)
    load = load_of_run(trace.jobs, settings, run)
    limit = limit_of(options, settings, paged, run, result, load)
    result = replace(result, limit=limit, options=options.repeat)
    with ignore_broken_pipe():
        print_report(trace, settings, run, result, options.verbose, out)
        repeat_warnings(warnings, out)
    files: list[File] = []
    if options.requests:
        rows = (encode(one).decode() + "\n" for one in requests_of(trace, run, settings.slo))
        files.append((options.requests, rows))
    if options.timeline and run.latency is not None:
        fleet = run.fleet
        ways = ({}, {}) if fleet is None else (fleet.choices, fleet.trips or {})
        files.append((options.timeline, timeline(run.timelines, run.latency.requests, *ways)))
    if options.json:
        whole = head(command, complete=not run.interrupted) | document(result)
        files.append((options.json, as_json(whole | {"warnings": warnings})))
    if options.html:
        told = [sentence(result), f"Limits: {limit.text}.", *(f"Try {one}" for one in limit.tries)]
        files.append((options.html, [page(result, told)]))
    write_all(files)
