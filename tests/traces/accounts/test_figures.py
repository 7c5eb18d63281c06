"""Single figures of a replay: sums by hand, words, partial runs, progress."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np

from invariants.watch import Watch
from sim.engine.sequence import RequestResult
from traces.formats._jobs import Jobs
from traces.replaying import playing
from traces.replaying.account import Account, Row, ceiling_of
from traces.replaying.config import resolve
from traces.replaying.run import Run
from traces.reporting.limits import Load, load_of, slower
from traces.results.record import NO_SHARE, Transfer

from .samples import blocks, options, talks

_NONE = np.zeros(0, dtype=np.int64)


def test_sums_are_exact() -> None:
    """Three tiers, requests that were not served, and the second half of an odd number."""
    jobs = Jobs()
    for length in (100, 600, 1000, 50, 70):
        jobs.add(0, length, 1)
    ceiling = np.array([0, 512, 1024, 0, 64], dtype=np.int32)
    account = Account(jobs, 64, ceiling)
    assert account.whole() == account.steady() == NO_SHARE
    assert account.whole().hit_rate == 0.0
    account.admit(0, 0, 0)
    account.admit(1, 512, 3, 20)
    account.admit(2, 0, 500, 7)
    account.admit(2, 1000, 0)  # it came back after a preemption: not counted again
    assert [account.served(index) for index in range(5)] == [True, True, True, False, False]
    whole, steady = account.whole(), account.steady()
    tiers = (whole.hit_tokens.device, whole.hit_tokens.host, whole.hit_tokens.storage)
    assert (whole.requests, whole.input_tokens, *tiers) == (3, 1700, 512, 503, 27)
    assert (whole.hit_tokens.all, whole.computed_tokens) == (1042, 658)
    assert (whole.ceiling_tokens, whole.first_seen_tokens, whole.lost_tokens) == (
        1536,
        164,
        1024 - 507,
    )
    assert (whole.hit_rate, whole.rate(17)) == (1042 / 1700, 17 / 1700)
    assert whole.hit_rate_pages == (9 + 8) / (2 + 10 + 16)
    assert abs(whole.hit_rate_mean - (535 / 600 + 507 / 1000) / 3) < 1e-12
    assert (steady.requests, steady.input_tokens, steady.hit_tokens.all) == (2, 1600, 1042)
    assert account.all_served().tolist() == [0, 1, 2]
    assert account.hit_tokens([1, 2, 3]) == (1042, 1650)
    assert account.hit_tokens([]) == (0, 0)
    rows = [Row(0, 100, 0, 0, 0, 0), Row(1, 600, 512, 512, 3, 20), Row(2, 1000, 1024, 0, 500, 7)]
    assert list(account.rows()) == rows
    assert [row.hit_tokens for row in rows] == [0, 535, 507]
    assert [row.lost for row in rows] == [0, 0, 517]
    assert [row.first_seen for row in rows] == [100, 88, -24]
    assert Row(0, 9, 1, 0, 0, 0).lost == 1


def test_ceilings_are_counted() -> None:
    """Leading pages seen before, page by page, on traces with many pages."""
    for trace in (blocks(1, 60, 3), talks(2, 50, 3)):
        for size in (16, 64):
            paged = trace.paged(size)
            for whole in (True, False):
                seen: set[int] = set()
                for job, found in zip(trace.jobs, ceiling_of(paged, whole).tolist(), strict=True):
                    chain = paged.chain(job).tolist()
                    leading = next(
                        (at for at, one in enumerate(chain) if one not in seen), len(chain)
                    )
                    seen.update(chain)
                    most = job.input_length if whole else (job.input_length - 1) // size * size
                    if whole and paged.knows_output:
                        most = job.input_length // size * size
                    assert found == min(leading * size, most), f"request {job.index}"
    deep = _Deep()
    assert ceiling_of(deep, True).tolist() == [0, 0, 30000, 10]  # type: ignore[arg-type]
    empty = _Deep([])
    assert ceiling_of(empty, True).tolist() == []  # type: ignore[arg-type]


class _Deep:
    """A trace with page numbers beyond what a table begins with, and one without pages."""

    page_size, knows_output = 10, False

    def __init__(self, chains: list[list[int]] | None = None) -> None:
        deep = [*range(3000)], [65536], [*range(3000), 250000], [65536, 250001]
        self.chains = list(deep) if chains is None else chains
        self.jobs = Jobs()
        for chain in self.chains:
            self.jobs.add(0, 10 * len(chain), 1)
        self.prompt_pages = np.array([len(chain) for chain in self.chains], dtype=np.int64)

    def chain(self, job: Any) -> Any:
        return np.array(self.chains[job.index], dtype=np.int64)


def _result(index: int, arrival: int, queue: int, compute: int) -> RequestResult:
    first = arrival + queue + compute
    times = (arrival, arrival + queue, first, first, 0)
    return RequestResult(index, 9, 1, 0, 0, 9, *times, compute_ns=compute)


def test_load_is_offered() -> None:
    jobs = Jobs()
    for index in range(12):
        jobs.add(index * 100, 9, 1, after=3 if index == 11 else -1)
    some = [_result(index, 50 + index * 100, 60, 20) for index in range(11)]
    late = _result(11, 90_000, 10, 0)  # it waited for another: it says nothing about the load
    found = load_of(jobs, [*some, late])
    assert (found.offered, found.waits) == (1080 / 1000, 670 / 220)
    assert found.queueing == 670 / 890
    assert load_of(jobs, some[:10]).offered == (900 + 80) / 900
    assert load_of(jobs, some[:9]).offered == 0.0
    together = [_result(index, 5, 1, 1) for index in range(11)]
    assert load_of(jobs, together).offered == 0.0
    nobody = load_of(jobs, [])
    assert (nobody.offered, nobody.queueing, nobody.waits) == (0.0, 0.0, 0.0)
    assert load_of(jobs, [_result(0, 0, 0, 0)]).waits == 0.0
    cases = ((1.2, 0.6), (1.1, 0.6), (1.2, 0.5), (0.0, 0.6), (0.0, 0.5), (0.0, 0.0))
    assert [Load(*one).overloaded for one in cases] == [True, False, False, False, False, False]
    assert [Load(*one).queued for one in cases] == [False, True, False, True, False, False]
    told = [slower(Load(offered, 1.0), Fraction(1)) for offered in (1.2, 2.0, 45.0, 1000.0, 0.09)]
    assert told == ["0.7", "0.4", "0.02", "0.0009", "10"], told
    assert slower(Load(1.5, 1.0), Fraction(25)) == "10"


# -- runs that are interrupted, and their progress


class _Shown:
    """Notes what a progress bar is told. most: interrupts at this number."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.told: list[tuple[str, int]] = []
        self.done: list[int] = []
        self.most = most

    @contextmanager
    def __call__(self, what: str, count: int) -> Iterator[Callable[[int], None]]:
        self.told.append((what, count))

        def report(done: int) -> None:
            self.done.append(done)
            if done >= self.most:
                raise KeyboardInterrupt

        yield report


def _run(mode: str, count: int, shown: _Shown, until: int | None = None, **given: Any) -> Run:
    trace = talks(5, count, 40)
    settings, paged = resolve(options(mode=mode, device_pages=300, **given), trace)
    watch = Watch("every") if settings.check == "every" else None
    found = playing.run(trace, paged, settings, watch, time.perf_counter(), False, until, shown)
    assert gc.isenabled()
    return found


def test_runs_can_stop() -> None:
    for mode in ("hits", "timed"):
        shown = _Shown()
        whole = _run(mode, 70, shown, host_pages=0, check="off")
        assert shown.told == [("replay", 70)]
        expected = [0, 64, 70] if mode == "hits" else [*range(1, 71)]
        assert shown.done == expected
        assert not whole.interrupted
        assert whole.history is None
        assert (whole.checks.level, whole.checks.operations) == ("off", 0)
        served = whole.account.all_served().tolist()
        assert len(served) == 70
        assert whole.transfers["h2d"] == Transfer(0, 0, 0, None if mode == "hits" else 0.0)
        until = _run(mode, 30, _Shown(), until=9, host_pages=200)
        assert until.interrupted
        assert until.account.served(9)
        assert len(until.account.all_served()) < 30
        assert (until.backbone.cached_at_rest, until.backbone.garbage_at_rest) == (None, None)
        assert until.checks.operations > 0
        stopped = _run(mode, 70, _Shown(64 if mode == "hits" else 9), host_pages=0)
        assert stopped.interrupted
        count = len(stopped.account.all_served())
        assert count == (65 if mode == "hits" else 9)


# -- the order of events in `hits` mode
