"""`hicache check-device`: tries every pool, layout, backend, dtype and direction on a real device.

Contains the command, the illegal combinations that must be refused, the tables and the document.
Does not draw or compare page sets; see devices/round_trips.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple, TextIO

from rich.table import Table
from rich.text import Text

import hicache.models as models
from hicache import registry
from hicache.core.errors import CallerError
from hicache.devices.base import Direction, Inspectable
from hicache.memory.host import check_node
from hicache.memory.layouts import BACKENDS, LAYOUTS, legal
from hicache.memory.pools import PoolPlan
from hicache.models import ModelDescription
from sim.errors import SimError, WrongBytesError

from ..devices import round_trips
from ..devices.probes import base as probes
from ..devices.probes.base import PROBES, Probe
from ..devices.round_trips import Case, Outcome
from ..devices.shadow_run import Sizes, drop_each_wait
from ..terminal import options as read
from ..terminal import tables
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_json
from ..terminal.progress import progress
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe
from ._options import of_numa_node

SUMMARY = "copy sets of pages for every pool, layout, backend and dtype, and compare every byte"
GROUP = "devices"
_NAMED = 5
_SETS = 10_000
_REQUESTS = 30


class Refusal(NamedTuple):
    """An illegal combination and the device's answer.

    said: the error message, or "" if the combination was accepted. names: the legal choice that the
    message must name.
    """

    what: str
    said: str
    names: str

    @property
    def fine(self) -> bool:
        return bool(self.said) and self.names in self.said and "\n" not in self.said


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise argparse.ArgumentTypeError(f"expected a rate from 0 to 1, found {text!r}")
    return rate


@dataclass(frozen=True)
class Options(OptionRecord):
    device: str = option(
        lambda: ", ".join(registry.names(PROBES)), read.entry(PROBES), default="cpu"
    )
    model: tuple[str, ...] = option(
        "a model, or a JSON file with one; may be repeated (default: all models)",
        str,
        "NAME",
        several=True,
        default=(),
    )
    sets: int = option(
        "number of random page sets over all cases; at least one for each case, component and "
        "direction",
        *read.COUNT,
        default=_SETS,
    )
    sample: float = option("fraction of pages to hash, 0 to 1", _rate, "RATE", default=1.0)
    numa_node: int | None = of_numa_node("wherever the system puts it")
    shadow: int = option(
        "number of requests of the run with the hazard detector, which is repeated without each of "
        "its stream waits",
        *read.COUNT_OR_0,
        default=_REQUESTS,
    )
    seed: int = option("seed of all random draws", read.at_least(0), default=0)
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", *read.OUTPUT
    )


def run(options: Options, command: str) -> int:
    """Returns the exit code. Raises WrongBytesError, after the tables, if a byte was wrong."""
    check_outputs({}, json=options.json)
    check_node(options.numa_node, "--numa-node")
    probe = probes.load(options.device)
    machine = probe.machine()
    chosen = [(name, models.get(name)) for name in options.model or models.names()]
    every = round_trips.cases(chosen, options.numa_node)
    sets = -(-options.sets // len(every))
    each = [max(sets, case.ways) for case in every]
    begun = time.perf_counter()
    outcomes: list[Outcome] = []
    before = 0
    with progress("check-device", sum(each), "page sets") as done:
        for number, case in enumerate(every):
            seed = (options.seed, number)
            report = partial(_add, done, before)
            outcomes.append(
                round_trips.run(probe, case, each[number], seed, options.sample, report)
            )
            before += each[number]
    refusals = list(_refusals(probe, chosen, every))
    wall_s = time.perf_counter() - begun
    out = sys.stderr if options.json == "-" else sys.stdout
    with ignore_broken_pipe():
        _print(options.device, machine, outcomes, refusals, wall_s, out)
    wrong = [line for outcome in outcomes for line in outcome.wrong]
    wrong += [line for one in outcomes if one.samples for line in one.samples.first]
    shadows = [] if wrong else _shadows(probe, every, options, out)
    if options.json:
        result = _document(options, command, machine, outcomes, refusals, wall_s)
        write_json(options.json, {**result, "shadow": shadows})
    if wrong:
        raise WrongBytesError(wrong[0])
    passed = [refusal for refusal in refusals if not refusal.fine]
    if passed:
        raise SimError(f"{passed[0].what}: expected an error that names {passed[0].names}")
    return 0


def _shadows(
    probe: Probe, every: list[Case], options: Options, out: TextIO
) -> list[dict[str, object]]:
    """Runs the hazard detector on the first model with each backend; returns the results."""
    results: list[dict[str, object]] = []
    for backend in BACKENDS if options.shadow else ():
        case = every[0]._replace(layout="page_first_direct", io_backend=backend)

        def make(sizes: Sizes, case: Case = case) -> AbstractContextManager[Inspectable]:
            geometry = case.geometry(sizes.device_pages, sizes.host_pages)
            return probe.make(geometry, time.perf_counter_ns)

        sizes = Sizes(case.model, case.page_size)
        shadow = drop_each_wait(make, sizes, options.shadow, options.seed)
        line = (
            f"hazard detector, {case.name}, {case.layout}, {backend}: {options.shadow} requests, "
            f"{shadow.accesses:,} accesses ordered, {shadow.spoiled:,} load targets overwritten "
            f"first, {shadow.intact:,} poisoned pages unchanged, {shadow.reads:,} reads exact; "
            f"the loss of {shadow.caught} of {shadow.waits} waits was detected"
        )
        with ignore_broken_pipe():
            print(line, file=out)
        results.append({"model": case.name, "io_backend": backend, **asdict(shadow)})
    return results


def _add(done: Callable[[int], object], before: int, count: int) -> None:
    done(before + count)


def _refusals(
    probe: Probe, chosen: list[tuple[str, ModelDescription]], every: list[Case]
) -> Iterable[Refusal]:
    """Tries each illegal combination."""
    case = every[0]
    for layout, backend in [(one, other) for one in LAYOUTS for other in BACKENDS]:
        if (layout, backend) not in legal():
            illegal = case._replace(layout=layout, io_backend=backend)
            yield _try_case(f"{backend} with {layout}", probe, illegal, "page_first_direct")
    yield _try_case("layout diagonal", probe, case._replace(layout="diagonal"), ", ".join(LAYOUTS))
    yield _try_case(
        "io_backend magic", probe, case._replace(io_backend="magic"), ", ".join(BACKENDS)
    )
    yield _try_case("page_size 0", probe, case._replace(page_size=0), "at least 1")
    for name, model in chosen:
        for pool in model.pools:
            if pool.compression > 1:
                yield _try(
                    f"{name}, pool {pool.name}: page size {pool.compression - 1}",
                    lambda pool=pool: pool.rows_per_page(pool.compression - 1),  # type: ignore[misc]
                    f"multiple of {pool.compression}",
                )
            bad = next((tp for tp in (3, 5) if pool.heads % tp and tp % pool.heads), 0)
            if bad and pool.heads > 1:
                yield _try(
                    f"{name}, pool {pool.name}: {pool.heads} heads on {bad} ranks",
                    lambda pool=pool, bad=bad: PoolPlan.of("host", pool, 1, 128, "page_head", bad),  # type: ignore[misc]
                    f"divisor or a multiple of {pool.heads}",
                )


def _try_case(what: str, probe: Probe, case: Case, names: str) -> Refusal:
    def make() -> None:
        with probe.make(case.geometry(2, 2), time.perf_counter_ns):
            pass

    return _try(what, make, names)


def _try(what: str, attempt: Callable[[], object], names: str) -> Refusal:
    try:
        attempt()
    except CallerError as error:
        return Refusal(what, str(error), names)
    return Refusal(what, "", names)


def _print(
    device: str,
    machine: dict[str, Any],
    outcomes: list[Outcome],
    refusals: list[Refusal],
    wall_s: float,
    out: TextIO,
) -> None:
    console = tables.console(out, piped=140)
    ways = legal()
    heads = [f"{layout}_{backend}".replace("_", "\n") for layout, backend in ways]
    table = tables.table(f"{device}: {machine['accelerator']}", "model", "pool", "dtype", *heads)
    for column in table.columns[:3]:
        column.justify = "left"
    rows: dict[tuple[str, str, str], dict[tuple[str, str], Text]] = {}
    for one in outcomes:
        case = one.case
        for pool in case.model.pools:
            counts = [one.counts[pool.name, way] for way in Direction]
            bad = sum(count.mismatches for count in counts)
            done = "+".join(str(count.sets) for count in counts)
            cell = Text(f"{bad} wrong", style="red") if bad else Text(done)
            row = rows.setdefault((case.name, pool.name, case.dtype), {})
            row[case.layout, case.io_backend] = cell
    for key, cells in rows.items():
        table.add_row(*key, *(cells.get(way, "") for way in ways))
    console.print(table)
    console.print("page sets, device to host + host to device; every byte of every pool compared")
    refused = tables.table("Refused", "illegal choice", "answer")
    refused.columns[1].justify = "left"
    for refusal in refusals:
        refused.add_row(
            refusal.what,
            Text(refusal.said or "accepted", style="" if refusal.fine else "red"),
        )
    console.print(refused)
    console.print(_samples_table(outcomes))
    sets = {way: sum(one.sets[way] for one in outcomes) for way in Direction}
    bad = sum(one.mismatches for one in outcomes)
    console.print(
        f"{sum(sets.values()):,} page sets ({sets[Direction.DEVICE_TO_HOST]:,} device to host, "
        f"{sets[Direction.HOST_TO_DEVICE]:,} host to device) on {len(outcomes)} devices in "
        f"{wall_s:.1f} s: {bad} mismatches; {sum(one.fine for one in refusals)} of "
        f"{len(refusals)} illegal choices were refused by name"
    )
    for line in [line for one in outcomes for line in one.wrong][:_NAMED]:
        console.print(line, style="red")


def _samples_table(outcomes: list[Outcome]) -> Table:
    counts = ("copied", "sampled", "bytes", "compared again", "mismatches")
    title = "Sampled pages, SHA-256 on both sides"
    table = tables.table(title, "pool", "direction", *counts)
    table.columns[1].justify = "left"
    for (pool, way), row in _sampled(outcomes).items():
        table.add_row(pool, way, *(f"{value:,}" for value in row.values()))
    return table


def _sampled(outcomes: list[Outcome]) -> dict[tuple[str, str], dict[str, int]]:
    """Sums by pool name and direction."""
    sums: dict[tuple[str, str], dict[str, int]] = {}
    for one in outcomes:
        for row in one.samples.rows if one.samples else ():
            names = ("copied", "pages", "bytes", "links", "mismatches")
            into = sums.setdefault((row.pool, row.direction.value), dict.fromkeys(names, 0))
            for name in names:
                into[name] += getattr(row, name)
    return sums


def _document(
    options: Options,
    command: str,
    machine: dict[str, Any],
    outcomes: list[Outcome],
    refusals: list[Refusal],
    wall_s: float,
) -> dict[str, object]:
    return {
        "command": command,
        "device": options.device,
        "machine": machine,
        "seed": options.seed,
        "sample": options.sample,
        "numa_node": options.numa_node,
        "sets": {way.value: sum(one.sets[way] for one in outcomes) for way in Direction},
        "mismatches": sum(one.mismatches for one in outcomes),
        "cases": [
            {
                "model": one.case.name,
                "dtype": one.case.dtype,
                "page_size": one.case.page_size,
                "layout": one.case.layout,
                "io_backend": one.case.io_backend,
                "pool": pool,
                "direction": way.value,
                "sets": count.sets,
                "pages": count.pages,
                "bytes": count.bytes,
                "mismatches": count.mismatches,
            }
            for one in outcomes
            for (pool, way), count in one.counts.items()
        ],
        "refused": [{"asked": one.what, "answer": one.said, "named": one.fine} for one in refusals],
        "samples": [
            {"pool": pool, "direction": way, **row}
            for (pool, way), row in _sampled(outcomes).items()
        ],
        "wall_s": round(wall_s, 3),
    }
