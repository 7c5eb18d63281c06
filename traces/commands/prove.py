"""`hicache prove`: random conversations with real models, judged by their logits.

Contains the command and its options. Does not play sequences (see proving/work), hand them out (see
proving/jobs), print the tables (see proving/report) or plant mistakes (see proving/planted_work).
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.fuzz.executors import ModelSettings, models
from invariants.prove import families
from invariants.watch import Level

from ..executors import base as executors
from ..fuzzing import planting
from ..fuzzing.files import Files
from ..proving import jobs, planted_report, planted_work
from ..proving.report import document, show
from ..proving.work import Proved, Proving
from ..replaying.defaults import CHECKS
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_folder, check_outputs, write_json
from ..terminal.progress import progress
from ..terminal.rows import option
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe, print_error

SUMMARY = "compare the logits of real models with this cache and without, in random conversations"
GROUP = "trust"
FOLDER = "prove-failures"
REQUESTS, PLANTED_REQUESTS = 200, 60
DTYPES = ("fp32", "bf16", "fp16")
ATTENTIONS = ("eager", "sdpa")


def _families(text: str) -> tuple[str, ...]:
    known = families.names()
    found = tuple(text.split(","))
    for name in found:
        if name not in known:
            raise argparse.ArgumentTypeError(
                f"expected a list of {', '.join(known)}, found {name[:40]!a}"
            )
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Options(OptionRecord):
    """requests, passes, seconds: None if not given."""

    family: tuple[str, ...] = option(
        f"families of models: {', '.join(families.names())} (default: all "
        "that have this attention)",
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
    plant = planting.check(options.plant or "")
    if options.planted:
        return _run_planted(options, plant, command)
    if options.seconds is not None and (options.requests or options.passes):
        other = "--requests" if options.requests else "--passes"
        raise CallerError(f"--seconds and {other} do not go together; leave one out")
    families = options.family or tuple(
        name for name in models().names() if options.attention in models().attentions(name)
    )
    for family in families:
        models().check(ModelSettings(family, options.dtype, options.attention))
    workers = executors.workers(executors.LOCAL, options.jobs or 0, 1 << 20)
    total = jobs.Sum({name: Proved(name) for name in families}, Files(Path(options.output)))
    work = Proving(
        options.dtype, options.attention, options.faults, options.check, options.output, plant
    )
    requests = options.requests or (1 if options.passes else REQUESTS)
    amount = jobs.Amount(requests, options.passes or 0)
    every = jobs.parts(families, options.seed, amount, options.seconds, workers)
    stream = sys.stderr if options.json == "-" else sys.stdout
    jobs.prove(work, every, workers, total)
    settings = _settings(options, families)
    with ignore_broken_pipe():
        show(total, settings, stream)
    if options.json:
        write_json(options.json, document(total, settings, command))
    if total.error is not None:
        raise total.error
    return total.code


def _run_planted(options: Options, plant: str, command: str) -> int:
    """Returns 0, or 17 if logits do not see a wrong definition."""
    usual: dict[str, object] = {"passes": None, "seconds": None, "seed": 1, "check": "every"}
    usual |= {"dtype": DTYPES[0], "attention": ATTENTIONS[0], "output": FOLDER}
    for name, value in usual.items():
        if getattr(options, name) != value:
            raise CallerError(f"--{name} and --planted do not go together; leave one out")
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
