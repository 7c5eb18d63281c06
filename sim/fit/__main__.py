"""Fits the constants of the roofline and of the engine profiles, and prints how far they are off.

    python -m sim.fit DATA                                  needs the extra `fit` (scipy)

`rows` reads published measurements and says what each ran on, `replays` plays them and notes every
pass, and `solving` finds the factors. Errors are those of all rows, and of the same rows where all
rows of one server and benchmark were left out. See docs/times.md and docs/figures.md.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import sim.fitted as fitted
from sim.fit.replays import Sample, recorded
from sim.fit.rows import THROUGHPUT, TPOT, TTFT, read
from sim.fit.solving import fit, left_out, predicted


def main() -> None:
    parser = argparse.ArgumentParser("python -m sim.fit", description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="+", help="measurements.jsonl, or its folder")
    parser.add_argument("-o", "--output", type=Path, help="fit new constants, and write them here")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    runs, factors = read(options.data), fitted.factors()
    if options.output:
        factors, samples = fit(runs, options.jobs)
        options.output.write_text(fitted.text_of(factors))
    else:
        samples = recorded(runs, factors, options.jobs)
    print_errors("all rows", errors_of(samples, predicted(samples, factors)))
    print_errors("left out", errors_of(*left_out(samples, factors)))


def errors_of(
    samples: Sequence[Sample], seconds: Sequence[float]
) -> list[tuple[Sample, str, float]]:
    """predicted / published - 1 of every figure, with its sample and what it is."""
    figures = [(sample, figure) for sample in samples for figure in sample.figures]
    result = []
    for (sample, item), took in zip(figures, seconds, strict=True):
        ratio = item.measured / took if item.what == THROUGHPUT else took / item.measured
        result.append((sample, item.what, ratio - 1))
    return result


def print_errors(title: str, errors: Sequence[tuple[Sample, str, float]]) -> None:
    print(f"{title:12}{'figures':>8}{'median':>9}{'9 of 10':>9}{'bias':>9}{'in 25 %':>9}")
    for quantity in (TPOT, TTFT, THROUGHPUT):
        signed = np.array([100 * error for _, what, error in errors if what == quantity])
        if len(signed):
            off = np.abs(signed)
            shown = (np.median(off), np.percentile(off, 90), np.median(signed))
            parts = (*shown, (off <= 25).mean() * 100)
            print(f"{quantity:12}{len(off):8}" + "".join(f"{part:8.1f}%" for part in parts))


if __name__ == "__main__":
    main()
