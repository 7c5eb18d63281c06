"""What a step's agreement costs over gloo on this machine, and a model of it for more ranks.

    python -m tests.bench.agreement_ranks [--ranks 2 4 8 16] [--steps 300]

Each rank is a process that polls an `Agreement`: a step has one collective, with a reply or without
(a second one only for sets without room in `FRAME` bytes, which are not here). A collective is one
exchange of each rank with each other.

    messages   ranks x (ranks - 1)                 of a collective
    work       fixed + each x (ranks - 1)          seconds of processor time of each rank
    time       work, where each rank has a core    without what the network adds
               ranks x work / cores                where ranks take turns

`fixed` and `each` follow from the smallest and the third number of ranks; the other rows check
them. Processor time is measured because other work on the machine hardly moves it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from hicache.core.actions import Backup
from hicache.core.events import BackupDone, Reply
from hicache.runtime.agreement import Agreement
from hicache.runtime.gloo_group import join, leave

FRAME = 512  # bytes
MODELLED = (16, 64, 256)
_PATIENCE_S = 300
_WARM = 20  # steps


class Cost(NamedTuple):
    """Seconds of a step with a reply. work: of processor time, the mean of all ranks. wall, quiet:
    the median and the first decile, on the rank in the middle. idle: the median of a step without a
    reply. collectives: of a step."""

    ranks: int
    work: float
    wall: float
    quiet: float
    idle: float
    collectives: float


class Model(NamedTuple):
    """Seconds of processor time of a rank for a step: see the module."""

    fixed: float
    each: float

    def work(self, ranks: int) -> float:
        return self.fixed + self.each * (ranks - 1)


def messages(ranks: int) -> int:
    """Of a step with a reply, between all ranks."""
    return ranks * (ranks - 1)


def fitted(one: Cost, other: Cost) -> Model:
    each = (other.work - one.work) / (other.ranks - one.ranks)
    return Model(one.work - each * (one.ranks - 1), each)


class _Ended:
    """An executor whose transfers have all ended."""

    def __init__(self) -> None:
        self._replies: list[Reply] = []

    def submit(self, action: Backup) -> None:
        self._replies.append(BackupDone(action.flight))

    def abandon(self, flight: int) -> None:
        pass

    def start(self) -> None:
        pass

    def poll(self) -> list[Reply]:
        taken, self._replies = self._replies, []
        return taken


def _rank(address: str, rank: int, ranks: int, steps: int, end: Connection) -> None:
    group = join(address, rank, ranks, timedelta(seconds=_PATIENCE_S))
    agreement = Agreement(_Ended(), group)  # type: ignore[arg-type]
    walls: dict[bool, list[float]] = {True: [], False: []}
    work, entered = 0.0, 0
    for step in range(-_WARM, 2 * steps):
        replies = step % 2 == 0
        if step == 0:
            entered = group.entered
        begun, used = time.perf_counter(), time.process_time()
        if replies:
            agreement.submit(Backup(step + _WARM + 1, ()))
        assert len(agreement.poll()) == replies
        if step >= 0:
            walls[replies].append(time.perf_counter() - begun)
            work += (time.process_time() - used) * replies
    leave()
    deciles = [statistics.quantiles(walls[replies], n=10) for replies in (True, False)]
    end.send(
        json.dumps(
            [work / steps, deciles[0][4], deciles[0][0], deciles[1][4], group.entered - entered]
        )
    )


def measured(ranks: int, steps: int) -> Cost:
    """Runs so many processes, which end with it."""
    context = multiprocessing.get_context("fork")  # torch is loaded once
    with tempfile.TemporaryDirectory() as folder:
        address = f"file://{Path(folder) / 'meet'}"
        pairs = [context.Pipe(duplex=False) for _ in range(ranks)]
        started = [
            context.Process(target=_rank, args=(address, rank, ranks, steps, pairs[rank][1]))
            for rank in range(ranks)
        ]
        try:
            for one in started:
                one.start()
            said = []
            for rank, (heard, _) in enumerate(pairs):
                if not heard.poll(_PATIENCE_S):
                    raise SystemExit(f"rank {rank} of {ranks} said nothing in {_PATIENCE_S} s")
                said.append(json.loads(heard.recv()))
        finally:
            for one in started:
                one.join(5)
                one.kill()
    work, *times, entered = zip(*said, strict=True)
    # a step without a reply has one collective
    return Cost(ranks, sum(work) / ranks, *map(statistics.median, times), entered[0] / steps - 1)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args(given)
    found = []
    for ranks in options.ranks:
        found.append(measured(ranks, options.steps))
        print(json.dumps(found[-1]._asdict()), flush=True)
    if len(found) < 2:
        return
    model, cores = fitted(found[0], found[min(2, len(found) - 1)]), os.cpu_count() or 1
    print(f"\nfixed {model.fixed * 1e6:.0f} us, {model.each * 1e6:.1f} us for each other rank")
    print(
        "| ranks | messages | KB from a rank | work: measured | modelled | time: measured |", end=""
    )
    print(f" on {cores} cores | a core each |\n{'|---' * 8}|")
    known = {one.ranks: one for one in found}
    for ranks in sorted({*known, *MODELLED}):
        one, work = known.get(ranks), model.work(ranks)
        seen = "", "", f"{_ms(work)}"
        if one is not None:
            error = f"{_ms(work)} ({work / one.work - 1:+.0%})"
            seen = _ms(one.work), f"{_ms(one.wall)} ({_ms(one.quiet)})", error
        shared = _ms(max(work, ranks * work / cores))
        cells = seen[0], seen[2], seen[1], shared, _ms(work)
        sent = FRAME * (ranks - 1) / 1000
        print(f"| {ranks} | {messages(ranks):,} | {sent:.1f} | {' | '.join(cells)} |")


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


if __name__ == "__main__":
    main()
