"""`hicache prove`: random conversations with real models, judged by their logits.

Contains the command and its options. Does not play sequences (see proving/work), hand them out (see
proving/jobs), print the tables (see proving/report) or plant mistakes (see proving/planted_work).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.fuzz.executors import ModelSettings, models
from invariants.prove import families
from invariants.watch import Level

from ..engines.models import FAMILIES
from ..engines.plants import PLANTS
from ..engines.vllm import python_of
from ..executors import base as executors
from ..fuzzing import planting
from ..fuzzing.files import Files
from ..judging import report as judged
from ..judging import work as judging
from ..judging.playing import Judged
from ..proving import jobs, planted_report, planted_work
from ..proving.report import document, show
from ..proving.work import Proved, Proving
from ..replaying.defaults import CHECKS
from ..terminal import options as read
from ..terminal.output import check_folder, check_outputs, write_json
from ..terminal.progress import progress
from ..terminal.rows import option
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe, print_error
from ._engine_options import RealEngineOptions

SUMMARY = "compare the logits of real models with this cache and without, in random conversations"
GROUP = "trust"
FOLDER = "prove-failures"
REQUESTS, PLANTED_REQUESTS = 200, 60
DTYPES = ("fp32", "bf16", "fp16")
ATTENTIONS = ("eager", "sdpa")


def _families(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.split(",")))


def _check_families(found: tuple[str, ...], known: Sequence[str]) -> None:
    for name in found:
        if name not in known:
            raise CallerError(
                f"--family: expected a list of {', '.join(known)}, found {name[:40]!a}"
            )


@dataclass(frozen=True)
class Options(RealEngineOptions):
    """requests, passes, seconds: None if not given."""

    family: tuple[str, ...] = option(  # type: ignore[assignment]
        f"families of models: {', '.join(families.names())}; with --engine {', '.join(FAMILIES)} "
        "(default: all that have this attention; with --engine all but the slow ones, "
        f"{', '.join(name for name, one in FAMILIES.items() if one.slow)})",
        _families,
        "LIST",
        default=(),
    )
    requests: int | None = option(
        f"stop when so many requests of each family had a pass (default: {REQUESTS}; none "
        "with --seconds)",
        *read.COUNT,
    )
    passes: int | None = option("and when so many passes of each family were compared", *read.COUNT)
    seed: int = option("seed of the first sequence (default: 1)", read.at_least(0), default=1)
    faults: bool = option("let copies, passes and the storage fail", default=False)
    seconds: int | None = option(
        "stop after this many seconds, divided among the families", read.at_least(1), "S"
    )
    dtype: str = option(", ".join(DTYPES), read.choice(DTYPES), default=DTYPES[0])
    attention: str = option(", ".join(ATTENTIONS), read.choice(ATTENTIONS), default=ATTENTIONS[0])
    check: Level = option(
        "checks beside the logits: " + ", ".join(CHECKS), read.choice(CHECKS), default="every"
    )
    jobs: int | None = option("worker processes (default: one for each core)", *read.COUNT)
    planted: bool = option(
        "plant each mistake in turn, or that of --plant: which do logits see, and which only "
        f"the checks? (--requests of each; default: {PLANTED_REQUESTS})",
        default=False,
    )
    plant: str | None = planting.bug("none")
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", *read.OUTPUT
    )
    output: str = option(
        "folder for the tape and the text of each failure",
        read.name,
        "FOLDER",
        short="-o",
        default=FOLDER,
    )


def run(options: Options, command: str) -> int:
    """Returns 0, the exit code of the worst failure, or 17 if a family was not judged."""
    check_outputs({}, json=options.json)
    check_folder(options.output, f"--output {options.output}")
    if options.engine:
        return _run_engine(options, command)
    if options.python:
        raise CallerError("--python needs --engine")
    _check_families(options.family, families.names())
    plant = planting.check(options.plant or "")
    if options.planted:
        return _run_planted(options, plant, command)
    if options.seconds is not None and (options.requests or options.passes):
        other = "--requests" if options.requests else "--passes"
        raise CallerError(f"--seconds and {other} do not go together; leave one out")
    chosen = options.family or tuple(
        name for name in models().names() if options.attention in models().attentions(name)
    )
    for family in chosen:
        models().check(ModelSettings(family, options.dtype, options.attention))
    workers = executors.workers(executors.LOCAL, options.jobs or 0, 1 << 20)
    total = jobs.Sum({name: Proved(name) for name in chosen}, Files(Path(options.output)))
    work = Proving(
        options.dtype, options.attention, options.faults, options.check, options.output, plant
    )
    requests = options.requests or (1 if options.passes else REQUESTS)
    amount = jobs.Amount(requests, options.passes or 0)
    every = jobs.parts(chosen, options.seed, amount, options.seconds, workers)
    stream = sys.stderr if options.json == "-" else sys.stdout
    jobs.prove(work, every, workers, total)
    settings = _settings(options, chosen)
    with ignore_broken_pipe():
        show(total, settings, stream)
    if options.json:
        write_json(options.json, document(total, settings, command))
    if total.error is not None:
        raise total.error
    return total.code


_OTHERS = {"passes": None, "dtype": DTYPES[0], "attention": ATTENTIONS[0], "check": "every"} | {
    "jobs": None,
    "planted": False,
}


def _check_unread(options: Options, unread: Mapping[str, object], with_: str) -> None:
    for name, usual in unread.items():
        if getattr(options, name) != usual:
            raise CallerError(f"--{name} and {with_} do not go together; leave one out")


def _run_engine(options: Options, command: str) -> int:
    """As `run`, with a real engine."""
    _check_unread(options, _OTHERS, "--engine")
    _check_families(options.family, list(FAMILIES))
    plant = options.plant or ""
    if plant and plant not in PLANTS:
        raise CallerError(f"--plant: expected one of {', '.join(PLANTS)}, found {plant[:40]!a}")
    chosen = options.family or tuple(name for name, one in FAMILIES.items() if not one.slow)
    requests = options.requests or (0 if options.seconds else REQUESTS)
    work = judging.Work(
        python_of(options.python or ""),
        requests,
        options.seconds or 0,
        options.seed,
        options.faults,
        plant,
        options.output,
    )
    total = judged.Total({name: Judged(name) for name in chosen})
    judging.run(work, total)
    settings: dict[str, object] = {
        "engine": options.engine,
        "families": ", ".join(chosen),
        "seed": options.seed,
        "faults": "yes" if options.faults else "",
        "planted": plant,
    }
    with ignore_broken_pipe():
        judged.show(total, settings, sys.stderr if options.json == "-" else sys.stdout)
    if options.json:
        write_json(options.json, judged.document(total, settings, command))
    return total.code


def _run_planted(options: Options, plant: str, command: str) -> int:
    """Returns 0, or 17 if logits do not see a wrong definition."""
    usual: dict[str, object] = {"passes": None, "seconds": None, "seed": 1, "check": "every"}
    usual |= {"dtype": DTYPES[0], "attention": ATTENTIONS[0], "output": FOLDER}
    _check_unread(options, usual, "--planted")
    names = [plant.replace("_", "-")] if plant else planted_work.names()
    requests = options.requests or PLANTED_REQUESTS
    listed = [
        planted_work.PlantedJob(name, requests, options.family, options.faults) for name in names
    ]
    workers = executors.workers(executors.LOCAL, options.jobs or 0, len(listed))
    found: list[planted_work.Found] = []
    begun, complete = time.monotonic(), True
    with progress("planted", len(listed), "mistakes") as shown:
        try:
            for one in planted_work.hunt(listed, workers):
                found.append(one)
                shown(len(found))
        except KeyboardInterrupt:
            complete = False
            print_error("interrupted; what was seen so far:")
    found.sort(key=lambda one: names.index(one.name))
    settings: dict[str, object] = {
        "families": ", ".join(options.family),
        "requests": requests,
        "faults": "yes" if options.faults else "",
        "planted": plant,
        "seconds": f"{time.monotonic() - begun:.0f}",
    }
    stream = sys.stderr if options.json == "-" else sys.stdout
    with ignore_broken_pipe():
        planted_report.show(found, settings, stream)
    if options.json:
        write_json(options.json, planted_report.document(found, settings, command, complete))
    return planted_report.code_of(found) if complete else INTERRUPTED


def _settings(options: Options, families: tuple[str, ...]) -> dict[str, object]:
    return {
        "families": ", ".join(families),
        "seed": options.seed,
        "faults": "yes" if options.faults else "",
        "dtype": options.dtype,
        "attention": options.attention,
        "checks": options.check,
        "planted": options.plant or "",
    }
