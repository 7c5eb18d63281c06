"""`hicache fidelity`: predicted times beside measurements that others published.

Replays every row that is complete enough as its source ran it, and prints the signed errors; rows
that constants may be fitted on and rows that judge are always apart. Does not read measurements
(see fidelity/rows), replay (see fidelity/running) or count (see fidelity/judging).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

from hicache import registry
from hicache.core.errors import CallerError
from sim.fitted import factors as fitted
from sim.times.base import DEFAULT

from ..executors import base as executors
from ..fidelity import judging, third_party
from ..fidelity.choosing import DATA, HALF, HALVES, JUDGE, chosen, data_folder, sampled
from ..fidelity.fitting import GROUPS, ROWS, factors_without, fitted_text
from ..fidelity.judging import summary_of
from ..fidelity.predicting import Outcome, Task
from ..fidelity.rows import FILE, GRADES, Row
from ..fidelity.rows import read as read_rows
from ..fidelity.rules import FIGURE_RULES, RULES
from ..fidelity.showing import page, picture
from ..fidelity.showing.printing import (
    beside,
    print_side_by_side,
    print_table,
    print_third_party,
)
from ..fidelity.table import How, predict_all
from ..reporting.head import head
from ..sweeping.svg import check_picture
from ..terminal import options as read
from ..terminal.output import as_json, check_outputs, write_all, write_whole
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe, print_error
from ._options import WorkerOptions

SUMMARY = "predicted times beside published measurements: signed errors, row by row"
GROUP = "trust"
_TITLE = "Predicted and published"


def _grades(text: str) -> tuple[str, ...]:
    found = tuple(sorted(set(text.upper().replace(",", ""))))
    if not found or set(found) - set(GRADES):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(GRADES)}, found {text!r}")
    return found


def _models(text: str) -> tuple[str, ...]:
    parse = read.entry(registry.TIMES)
    return tuple(dict.fromkeys(parse(part.strip()) for part in text.split(",")))


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True)
class Options(WorkerOptions):
    """sample: None for all rows."""

    data: str | None = option(
        f"a folder with {FILE}, or such a file (default: {DATA}, else ../shared/published)",
        read.name,
        "FOLDER",
    )
    only: tuple[str, ...] = option(
        "only rows that match all of these, separated by commas: a kind, GPU, model, engine, "
        "engine@version, a part of an id, or a pattern of ids with * and ?",
        _words,
        "WORDS",
        default=(),
    )
    grade: tuple[str, ...] = option(
        "grades of rows (default: A,B); those of C are shown apart and not judged",
        _grades,
        "GRADES",
        default=("A", "B"),
    )
    sample: int | None = option(
        "about N rows, some of every GPU, model, engine and kind, for a quick look", *read.COUNT
    )
    times: tuple[str, ...] = option(
        lambda: (
            "time models, separated by commas, side by side: "
            f"{', '.join(registry.spellings(registry.TIMES))} (default: {DEFAULT})"
        ),
        _models,
        "NAMES",
        default=(DEFAULT,),
    )
    leave_out: str | None = option(
        "predict each row with constants that were fitted to all others but its group (groups), or "
        "but half of the rows of every group (rows)",
        read.choice((GROUPS, ROWS)),
        "WHAT",
    )
    third_party: bool = option(
        "predict the 40 experiments of a third party instead, and print its table: the errors of "
        "other simulators, and of this one on the same experiments",
        default=False,
    )
    full: bool = option(
        "also print errors by ranks and precision, and those of grade C", default=False
    )
    fit: str | None = option(
        "fit the constants to all rows and write them here, and do nothing else; "
        "sim/fitted/fitted.json is the file that is read",
        *read.OUTPUT,
    )
    keep: str | None = option(
        "keep each row here when it is done (JSON lines), and do only what is missing", *read.FILE
    )
    summary: str | None = option(
        "also write the errors, from which reports say which error to expect: with --leave-out "
        "rows traces/expected/known.json, with groups traces/expected/new.json",
        *read.OUTPUT,
    )
    json: str | None = option("also write the figures; - is stdout", *read.OUTPUT)
    html: str | None = option("also write a page with charts", *read.OUTPUT)
    output: str | None = option(
        "also write the picture (SVG): predicted against published, bands of 10 and 25 %%",
        *read.OUTPUT,
        short="-o",
    )


def run(options: Options, command: str) -> int:
    folder = data_folder(options.data)
    check_outputs(
        {"data": str(folder / FILE if folder.is_dir() else folder)},
        json=options.json,
        html=options.html,
        output=options.output,
        keep=options.keep,
        summary=options.summary,
        fit=options.fit,
    )
    if [options.summary, options.json, options.html, options.output].count("-") > 1:
        raise CallerError("-: expected one document on standard output, found two; name a file")
    if options.summary and options.leave_out is None:
        raise CallerError(
            "--summary: expected --leave-out rows or groups beside it, whose errors are those to "
            "expect, found none; name one"
        )
    check_picture(options.output)
    executors.load(options.executor)
    if options.fit is not None:
        _check_alone(options)
        text, beyond = fitted_text(read_rows(folder), options.executor, options.jobs or 0)
        write_whole(options.fit, [text])
        for name, group, part in beyond:
            print_error(
                f"{name} of {group}: the fit asks for {part:.3f} of the data sheet; runs are "
                "predicted with 1"
            )
        return 0
    every = _given(options, folder)
    rows = chosen(every, options.grade, options.only)
    if options.sample is not None:
        rows = sampled(rows, options.sample)
    how = How(options.executor, options.jobs or 0, options.keep)
    found = predict_all(_tasks(options, every, rows), how)
    if options.leave_out is not None:  # every row judges
        found = replace(found, outcomes=[replace(one, half=JUDGE) for one in found.outcomes])
    out = (
        sys.stderr
        if "-" in (options.summary, options.json, options.html, options.output)
        else sys.stdout
    )
    with ignore_broken_pipe():
        _print(found.outcomes, options, out)
    _write(found.outcomes, options, command, not found.code and found.error is None)
    return found.ended()


def _given(options: Options, folder: Path) -> list[Row]:
    if not options.third_party:
        return read_rows(folder)
    if options.data:
        raise CallerError(
            "--third-party and --data do not go together; leave one out: its experiments are a "
            "table of their own"
        )
    return third_party.rows()


def _tasks(options: Options, every: Sequence[Row], rows: Sequence[Row]) -> list[Task]:
    """every: what constants may be fitted to, where rows are left out. The halves have constants
    that were fitted to one of them."""
    if options.leave_out is None:
        given = None if options.third_party else fitted.read(HALF)
        return [Task(row, times, given) for times in options.times for row in rows]
    if options.third_party or options.times != (DEFAULT,):
        raise CallerError(
            f"--leave-out: expected measurements and --times {DEFAULT}, whose constants are "
            "fitted, found another table; leave out --third-party and --times"
        )
    every = chosen(every, options.grade, ())
    factors = factors_without(every, options.leave_out, options.executor, options.jobs or 0)
    found = [Task(row, DEFAULT, factors[row.id]) for row in rows if row.id in factors]
    if not found:
        raise CallerError(
            "--leave-out: expected a row that constants can be fitted without, found none; name "
            "other rows with --only"
        )
    return found


def _check_alone(options: Options) -> None:
    """--fit takes every row, and writes nothing else."""
    others = ("leave_out", "third_party", "only", "sample", "keep", "summary", "json", "html")
    for name in (*others, "output"):
        if getattr(options, name):
            flag = name.replace("_", "-")
            raise CallerError(
                f"--fit and --{flag} do not go together; leave one out: --fit writes the constants "
                "alone, from all rows"
            )


def _of(outcomes: Sequence[Outcome], times: str) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.times == times]


def _print(outcomes: Sequence[Outcome], options: Options, out: TextIO) -> None:
    for times in options.times:
        if options.third_party:
            print_third_party(_of(outcomes, times), out)
        else:
            print_table(_of(outcomes, times), out, options.full)
    if len(options.times) > 1 and not options.third_party:
        print_side_by_side(outcomes, out)


def _write(outcomes: Sequence[Outcome], options: Options, command: str, complete: bool) -> None:
    """The documents. The first time model is the one of the halves, the page and the picture."""
    first = _of(outcomes, options.times[0])
    whole = {
        **head(command, complete),
        "kind": "fidelity",
        **_document(outcomes, options),
    }
    rows = len({outcome.id for outcome in first if outcome.figures})
    title = f"{_TITLE}: {rows:,} published runs"
    notes = [f"Time model {options.times[0]}; rows to fit and rows to judge are groups apart."]
    files = []
    if options.summary:
        files.append((options.summary, [summary_of(outcomes)]))
    if options.json:
        files.append((options.json, as_json(whole)))
    if options.html:
        files.append((options.html, [page.page(first, title, f"{notes[0]} {command}", whole)]))
    if options.output:
        files.append((options.output, [picture.picture(first, title, notes)]))
    write_all(files)


def _document(outcomes: Sequence[Outcome], options: Options) -> dict[str, object]:
    models = options.times
    first = _of(outcomes, models[0])
    return {
        "times": models[0],
        "labels": sorted({outcome.label for outcome in first if outcome.label}),
        **judging.halves(first),
        "left_out": judging.left_out(first),
        "not_judged": judging.not_judged(first),
        "rules": RULES | FIGURE_RULES,
        "beside": {
            half: {
                quantity: dict(zip(models, map(asdict, summaries), strict=True))
                for quantity, summaries in beside(outcomes, half, models).items()
            }
            for half in HALVES
        }
        if len(models) > 1
        else None,
        "third_party": [asdict(one) for one in third_party.scored(first)]
        if options.third_party
        else None,
        "rows": [outcome.document() for outcome in outcomes],
    }
