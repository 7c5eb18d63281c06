"""Makes the errors that reports tell of pairs that somebody published: those of published rows with
constants that were fitted without any row of their server and benchmark.

    python -m tests.bench.error_bars DATA traces/error_bars/known.json        needs the extra `fit`

DATA is that of `python -m sim.fit`, and the constants are the shipped ones. Prints the errors, and
how often the bar of nine of ten holds, made of half of the series, for the others.
"""

import itertools
import json
import math
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import TypeAlias

from msgspec import convert

from sim import fitted
from sim.fit.__main__ import errors_of, print_errors
from sim.fit.replays import Sample, recorded
from sim.fit.rows import read
from sim.fit.solving import left_out
from sim.times.base import DEFAULT
from traces.error_bars import ALL, MOST_QUEUEING, Group, Validated, expected_error, load, precision

Error: TypeAlias = tuple[Validated, str, float]  # run, metric, predicted / published - 1
_KIND = ("times", "hardware", "ranks", "precision", "load", "engine", "saturated")
Kind: TypeAlias = tuple[str, str, int, str, str, str, bool]
_ENOUGH = 5


def validated(sample: Sample) -> Validated:
    run = sample.run
    return Validated(
        DEFAULT,
        run.hardware.name,
        run.engine.name,
        run.model.name,
        run.parallelism.ranks,
        precision(run.model.weight_dtype),
        load(sample.at_once),
        sample.queueing,
    )


def table(errors: Iterable[Error]) -> str:
    """The file of groups. What nine of ten do not exceed is that of all ranks and weights with this
    accelerator, engine, load and saturation, or of all loads where these are few; of one run more,
    so that it holds for the next."""
    groups: dict[Kind, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    models: dict[Kind, set[str]] = defaultdict(set)
    wide: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for run, metric, error in errors:
        saturated = run.queueing > MOST_QUEUEING
        for engine in (ALL, run.engine):
            place = run.times, run.hardware, run.ranks, run.precision, run.load
            kind = (*place, engine, saturated)
            groups[kind][metric].append(abs(error))
            models[kind].add(run.model)
            for more in _wider(kind):
                wide[*more, metric].append(abs(error))
    lines = []
    for kind, result in sorted(groups.items()):
        message: dict[str, dict[str, float]] = {}
        for metric, each in sorted(result.items()):
            near, all_loads = (wide[*item, metric] for item in _wider(kind))
            many = sorted(all_loads if len(near) < _ENOUGH <= len(all_loads) else near)
            tenth = many[min(len(many), math.ceil(0.9 * (len(many) + 1))) - 1]
            message[metric] = {
                "runs": len(each),
                "median": round(median(each), 4),
                "nine_tenths": round(max(median(each), tenth), 4),
            }
        group = dict(zip(_KIND, kind, strict=True)) | {"models": sorted(models[kind])}
        lines.append(json.dumps(group | {"errors": message}))
    return '{"groups": [\n' + ",\n".join(lines) + "\n]}\n"


def _wider(kind: Kind) -> tuple[tuple[object, ...], ...]:
    times, hardware, _, _, load, engine, saturated = kind
    return (times, hardware, engine, load, saturated), (times, hardware, engine)


def within_bars(errors: Sequence[Error], tried: Sequence[Error]) -> Counter[tuple[bool, bool]]:
    """How many figures of `tried` are within the bar that the others make, by whether requests
    mostly wait and whether it holds."""
    groups = convert(json.loads(table(errors))["groups"], list[Group])
    counts: Counter[tuple[bool, bool]] = Counter()
    for run, metric, error in tried:
        bar = getattr(expected_error(run, groups, groups), metric)
        if bar is not None:
            counts[run.queueing > MOST_QUEUEING, abs(error) <= bar.nine_tenths] += 1
    return counts


def main(data: str, output: str) -> None:
    factors = fitted.factors()
    samples = recorded(read([Path(data)]), factors, os.cpu_count() or 1)
    result = errors_of(*left_out(samples, factors))
    print_errors("left out", result)
    series = sorted({sample.run.series for sample, *_ in result})
    halves: tuple[list[Error], list[Error]] = ([], [])
    for sample, what, error in result:
        half = halves[series.index(sample.run.series) % 2]
        half.append((validated(sample), what, error))
    Path(output).write_text(table(itertools.chain(*halves)))
    counts = within_bars(*halves) + within_bars(*halves[::-1])
    for waits, name in enumerate(("short queues", "requests mostly wait")):
        within, beyond = counts[bool(waits), True], counts[bool(waits), False]
        print(f"{name}: {within / max(1, within + beyond):.1%} of {within + beyond} within the bar")


if __name__ == "__main__":
    main(*sys.argv[1:])
