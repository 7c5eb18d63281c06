"""Fits the constants of the roofline and of the engine profiles, and prints how far they are off.

    python -m sim.fit DATA -o sim/fitted/fitted.json        needs the extra `fit` (scipy)

`rows` reads published measurements and says what each ran on, `replays` plays them and notes every
pass, and `solving` finds the factors. Errors are those of the rows that were fitted, and of the
same rows where all rows of one server and benchmark were left out. See docs/fidelity.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sim.fit.replays import Sample
from sim.fit.rows import THROUGHPUT, TPOT, TTFT, read
from sim.fit.solving import fit, left_out, predicted
from sim.fitted import text_of


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m sim.fit", description=str(__doc__).splitlines()[0]
    )
    parser.add_argument("data", type=Path, nargs="+", help="measurements.jsonl, or its folder")
    parser.add_argument("-o", "--output", type=Path, required=True, help="write constants here")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    factors, samples = fit(read(options.data), options.jobs)
    options.output.write_text(text_of(factors))
    print_errors("fitted", samples, predicted(samples, factors))
    print_errors("left out", *left_out(samples, factors))


def print_errors(title: str, samples: Sequence[Sample], seconds: Sequence[float]) -> None:
    """predicted / published - 1."""
    print(f"{title:12}{'figures':>8}{'median':>9}{'9 of 10':>9}{'bias':>9}{'in 25 %':>9}")
    targets = [target for sample in samples for target in sample.figures]
    pairs = list(zip(targets, seconds, strict=True))
    for quantity in (TPOT, TTFT, THROUGHPUT):
        each = [(one.measured, took) for one, took in pairs if one.what == quantity]
        if each:
            published, took = np.array(each).T
            ratio = published / took if quantity == THROUGHPUT else took / published
            signed = (ratio - 1) * 100
            errors = np.abs(signed)
            shown = (np.median(errors), np.percentile(errors, 90), np.median(signed))
            parts = (*shown, (errors <= 25).mean() * 100)
            print(f"{quantity:12}{len(each):8}" + "".join(f"{part:8.1f}%" for part in parts))


if __name__ == "__main__":
    main()
