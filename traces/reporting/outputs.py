"""What a replay prints and writes at its end: the report, its sentences, the files.

Connects the other files of this folder. Does not run anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO, TypeAlias

from hicache.core.errors import CallerError
from invariants.accounts import figures
from invariants.accounts.accounts import Accounts, arrive_in_turn

from ..formats.base import Paged, Trace
from ..outside import entries
from ..replaying.fitting import without
from ..replaying.options import ReplayOptions
from ..replaying.run import Run
from ..replaying.settings import Settings
from ..results.record import document
from ..terminal.output import as_json, check_outputs, write_all
from ..terminal.streams import ignore_broken_pipe, on_one_screen, print_error
from ..terminal.tables import print_sentences
from . import timestamps
from .conclusions import conclusions
from .fleet import way_of
from .head import head
from .overload import load_of_run
from .records import lines
from .report import print_report
from .results import result_of
from .why import story

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


def check_served(options: ReplayOptions, trace: Trace, settings: Settings) -> None:
    """Raises CallerError if the request of `--why` is not in the trace, or is left out."""
    if options.why is None:
        return
    whole = (options.json, options.requests, options.html, options.compare_eviction)
    if any(whole):
        raise CallerError(
            "--why: expected no --json, --requests, --html or --compare-eviction, which "
            "belong to a whole replay, found one; give either"
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


def warn(trace: Trace, settings: Settings) -> list[str]:
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
    settings: Settings,
    run: Run,
    options: ReplayOptions,
    command: str,
    warnings: list[str],
    out: TextIO,
    more: Callable[[Sequence[str]], Sequence[File]] | None = None,
) -> None:
    """Prints the report and writes the files that were asked for, each whole or not at all.

    more: further files, from the sentences of the report. Before all that, with all checks on,
    compares the figures with accounts that were counted twice.
    """
    result = result_of(trace, settings, run)
    load = load_of_run(trace.jobs, settings, run)
    told = conclusions(options, trace, settings, run, result, load)
    found = head(command, complete=not run.interrupted) | document(result)
    found |= {"warnings": warnings, "conclusions": told}
    judge(without(paged, settings.skipped), settings, run, found, command)
    with ignore_broken_pipe():
        print_report(trace, settings, run, result, out)
        repeat_warnings(warnings, out)
        print_sentences("In words", told, out)
    files: list[File] = []
    if options.requests and run.streaming is None:
        files.append((options.requests, lines(trace, run, settings.slo)))
    if options.json:
        files.append((options.json, as_json(found)))
    if more is not None:
        files += more(told)
    write_all(files)


def explain_request(trace: Trace, paged: Paged, run: Run, index: int, out: TextIO) -> None:
    """Prints the story of one request, which was served."""
    head_, *rest = story(trace, paged, run, index)
    if run.fleet is not None:
        rest.insert(0, way_of(run.fleet, index))
    print_sentences(head_, rest, out)


def judge(
    paged: Paged, settings: Settings, run: Run, document: Mapping[str, object], command: str
) -> None:
    """Whether the report says what the events say, with `--check every`: the whole document and
    each request's record are compared with accounts that were counted a second time
    (invariants/accounts). Raises HarnessFault for the first figure that the events do not give.

    paged: without the requests that were left out. Does nothing without accounts, and after an
    interrupt, which may come between an event and its count.
    """
    accounts = run.accounts
    if accounts is None or run.interrupted:
        return
    core, concurrency = settings.core, settings.load.concurrency
    for index in settings.uncached.requests:
        accounts.entries[index].finish_ns = 0  # it has no events
    if concurrency and run.latency is not None:
        arrive_in_turn(accounts.entries, paged.jobs, concurrency, settings.speed)
    timed = run.latency is not None
    ceiling = figures.ceilings(paged, whole_prompts=settings.whole_prompts)
    expected = figures.shares(accounts, ceiling, core.page_size)
    sizes = settings.page_bytes, settings.host_page_bytes
    expected |= figures.pages(accounts, core.components, *sizes)
    if settings.storage is not None:
        expected |= figures.prefetches(accounts, core.page_size)
    if timed:
        expected |= figures.times(accounts)
        if settings.slo is not None:
            expected |= figures.limits(accounts, dict(settings.slo.limits))
    if len(core.components) > 1:
        expected["lookups"] = figures.lookups(accounts, core.components, ceiling, core.page_size)
    wrong = accounts.wrong or _of_requests(accounts, run)
    if wrong:
        figures.fail(wrong[0], command)
    figures.check(expected, _comparable(document), command)


def _of_requests(accounts: Accounts, run: Run) -> list[str]:
    """What is wrong with the two parts of each request's time in passes."""
    results = () if run.latency is None else run.latency.requests
    parts = (
        figures.in_parts(one.request, accounts.entries[one.request], one.load_ns, one.compute_ns)
        for one in results
    )
    return [part for part in parts if part]


def _comparable(document: Mapping[str, object]) -> Mapping[str, object]:
    """The document without the words of its lookups."""
    lookups = document.get("lookups")
    if not isinstance(lookups, list):
        return document
    rows = [{key: row[key] for key in row if key != "because"} for row in lookups]
    return {**document, "lookups": rows}
