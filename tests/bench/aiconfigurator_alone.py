"""AIConfigurator's own estimate of the published closed loops, for docs/fidelity.md.

Its core has a closed form of continuous batching (`run_agg`): a mean prefill pass, a mean decode
pass, how many there are of each, and a factor for the queue, all from its tables. Nothing is
replayed. This script gives it the mean lengths, the batch and the types of each row, with passes
that carry one prompt, and prints the errors of mean TTFT and mean TPOT. Rows that are in
silicon_sample.csv, which its makers hold their changes to, are apart. Run it:

    python -m tests.bench.aiconfigurator_alone FOLDER
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from aiconfigurator_core.sdk import perf_database
from aiconfigurator_core.sdk.backends.factory import get_backend
from aiconfigurator_core.sdk.config import RuntimeConfig
from aiconfigurator_core.sdk.config_builders import build_model_config
from aiconfigurator_core.sdk.models import get_model

from hicache.core.errors import CallerError
from sim.times import _aiconfigurator_names as names
from sim.times.base import Parallelism
from traces.fidelity.choosing import half
from traces.fidelity.figures import TPOT, TTFT, figures_of
from traces.fidelity.rows import Row, read
from traces.fidelity.rules import figure_rule, row_rule
from traces.fidelity.setup import setup_of
from traces.fidelity.workloads import load_of

_LACKS = (CallerError, RuntimeError, ValueError)
_SILICON = "aic-"  # ids of rows that come from silicon_sample.csv


@lru_cache(maxsize=256)
def _parts(model: str, system: str, engine: str, ranks: Parallelism, modes: tuple[Any, ...]) -> Any:
    """The library's model, tables and engine."""
    experts = (ranks.tp // ranks.ep, ranks.ep)
    shares = (ranks.attention_tp, ranks.pp, ranks.attention_dp, *experts)
    return (
        get_model(model, build_model_config(*shares, **dict(modes)), engine),
        perf_database.get_database(system, engine, "current"),
        get_backend(engine),
    )


def estimate(row: Row) -> tuple[float, float]:
    """Mean TTFT and mean TPOT in seconds. Raises one of `_LACKS` where there are no tables."""
    load = load_of(row)
    if load is None:
        raise CallerError(f"{row.id}: expected its lengths, found none")
    setup = setup_of(row, load.concurrency)
    prompt = round(float(np.mean([job.input_length for job in load.jobs])))
    output = round(float(np.mean([job.output_length for job in load.jobs])))
    batch = max(1, load.concurrency // setup.parallelism.attention_dp)
    asked = RuntimeConfig(batch_size=batch, isl=prompt, osl=output)
    lacks: Exception | None = None
    for modes in names.precisions(setup.model, setup.hardware, row.engine):
        try:
            model, tables, engine = _parts(
                names.model_of(setup.model),
                names.system_of(setup.hardware.name),
                row.engine,
                setup.parallelism,
                tuple(modes.items()),
            )
            found = engine.run_agg(
                model,
                tables,
                asked,
                ctx_tokens=prompt,
                max_seq_len=prompt + output,
                max_num_tokens=setup.token_budget,
            ).get_summary_df()
            return float(found.loc[0, "ttft"]) / 1e3, float(found.loc[0, "tpot"]) / 1e3
        except _LACKS as error:
            lacks = error
    assert lacks is not None
    raise lacks


def errors(row: Row) -> Iterator[tuple[str, float]]:
    """Quantity and signed error of the judged means of a row."""
    ttft, tpot = estimate(row)
    for figure in figures_of(row):
        wanted = {TTFT: ttft, TPOT: tpot}.get(figure.quantity)
        counted = figure.judged and figure.statistic == "mean" and not figure.phase
        if wanted is not None and counted and not figure_rule(row, figure):
            yield figure.quantity, wanted / figure.value - 1


def main(folder: str) -> None:
    logging.disable(logging.CRITICAL)
    found: dict[tuple[str, str, str], list[float]] = {}
    lacking = 0
    for row in read(Path(folder)):
        if row.grade == "C" or row_rule(row) or not row.kind.startswith("serving-closed-loop"):
            continue
        try:
            for quantity, error in errors(row):
                where = "silicon_sample.csv" if row.id.startswith(_SILICON) else "other sources"
                found.setdefault((half(row), where, quantity), []).append(error)
        except _LACKS:
            lacking += 1
    print(f"{lacking} rows without tables")
    for key, signed in sorted(found.items()):
        absolute = np.abs(signed)
        print(
            f"{', '.join(key)}: {len(signed)} figures, median {np.median(absolute):.1%}, nine of "
            f"ten within {np.percentile(absolute, 90):.1%}, bias {np.median(signed):+.1%}"
        )


if __name__ == "__main__":
    main(sys.argv[1])
