"""Small replays in both modes, all of whose figures are computed again, with those of
invariants/accounts; what became of each page is told by the core's own notices for routers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from invariants.accounts import figures
from invariants.accounts.accounts import Accounts
from invariants.accounts.figures import Figures
from invariants.books.distances import garbage_report
from invariants.watch import Watch
from sim.options import WorldOptions
from sim.replica import TimedResult
from sim.world import World
from traces.formats.base import Paged, Trace
from traces.replaying import modes
from traces.replaying.fitting import without
from traces.replaying.observing.team import Team
from traces.replaying.options import ReplayOptions
from traces.replaying.settings import resolve
from traces.reporting import records
from traces.reporting.results import result_of
from traces.results.record import document

from .page_history import PageHistory
from .samples import blocks, late, options, talks

_PAGE = 16


@contextmanager
def _unseen(_: str, __: int) -> Iterator[Callable[[int], None]]:
    """No progress on the screen."""
    yield lambda done: None


_HYBRID = {"components": ("full", "swa", "mamba"), "swa_window": 48, "mamba_interval": 32}
_SIZES: tuple[dict[str, Any], ...] = (
    {"device_pages": 200, "host_pages": 0},
    {"device_pages": 200, "host_pages": 300, "write_policy": "write_back", "speed": Fraction(3, 2)},
    {"device_pages": 180, "host_pages": 90, "load_threshold": 6, "max_running": 3},
    {"device_pages": 190, "host_pages": 400, "token_budget": 256, "speed": Fraction(30)},
    {**_HYBRID, "device_pages": 200, "host_pages": 300, "swa_tokens": 640, "mamba_states": 14},
    {**_HYBRID, "device_pages": 170, "host_pages": 90, "swa_tokens": 480, "mamba_states": 9},
)  # fmt: skip


class Judged:
    """One replay, and everything that is known of it besides its own accounts."""

    def __init__(self, trace: Trace, given: ReplayOptions, checked: bool = False) -> None:
        self.trace = trace
        settings, self.paged = resolve(given, trace)
        self.settings = replace(settings, core=replace(settings.core, kv_events=True))
        self.kept = without(self.paged, self.settings.skipped)
        self.timed = settings.mode == "timed"
        self.ceiling = figures.ceilings(self.kept, whole_prompts=not self.timed)
        size = settings.core.page_size
        pages = {index: -(-tokens // size) for index, tokens in self.ceiling.items()}
        self.pages = PageHistory(settings.core.components, pages)
        self.watch = Watch("every") if checked else None
        began = time.perf_counter()
        with _watched(self.pages):
            self.run = modes.run(
                trace, self.paged, self.settings, self.watch, began, True, None, _unseen
            )
        assert 0 < self.run.wall_s <= time.perf_counter() - began
        self.found = document(result_of(trace, self.settings, self.run))


@contextmanager
def _watched(pages: PageHistory) -> Iterator[None]:
    """Gives the observer to the run, whose own observers are made inside of it."""
    made = Team.__init__

    def more(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self.all[0].append(pages)
        pages.now_ns = lambda: self.accounts.now_ns()

    Team.__init__ = more  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Team.__init__ = made  # type: ignore[method-assign]


def judge(trace: Trace, given: ReplayOptions, checked: bool = False) -> None:
    """Raises AssertionError for the first figure that is not as counted again."""
    one = Judged(trace, given, checked)
    accounts, run, settings = one.run.accounts, one.run, one.settings
    assert accounts is not None
    assert not run.interrupted
    assert not accounts.wrong, accounts.wrong
    expected = figures.shares(accounts, one.ceiling, settings.core.page_size)
    sizes = settings.page_bytes, settings.host_page_bytes
    expected |= figures.pages(accounts, settings.core.components, *sizes)
    expected |= _of_trace(one) | _of_pools(one) | _of_checks(one)
    if one.timed:
        expected |= figures.times(accounts) | _of_links(one)
        _same_parts(one, accounts)
    expected["turns"] = _turns(one, accounts) or "nothing"
    _compare(expected, one.found)
    _compare_lookups(one, accounts)
    _compare_records(one, accounts)


def _compare(expected: Figures, found: Any) -> None:
    wrong = next(figures.differences(expected, found), "")
    assert not wrong, wrong


def _of_trace(one: Judged) -> Figures:
    jobs, skipped = list(one.trace.jobs), one.settings.skipped.requests
    left = [job for job in jobs if job.index not in skipped]
    return {
        "interrupted": False,
        "served_requests": len(left),
        "trace.path": "trace",
        "trace.format": one.trace.format,
        "trace.requests": len(jobs),
        "trace.input_tokens": sum(job.input_length for job in jobs),
        "trace.block_size": one.trace.block_size,
        "skipped.requests": len(jobs) - len(left),
        "skipped.input_tokens": sum(job.input_length for job in jobs if job not in left),
        "config": one.settings.as_options(),
        "digest": one.run.digest,
        "wall_s": round(one.run.wall_s, 3),
    }


def _of_pools(one: Judged) -> Figures:
    core, tp = one.settings.core, one.settings.tp
    assert one.pages.view is not None
    rest = garbage_report(one.pages.view)
    found: Figures = {}
    for place, name in enumerate(core.components):
        size = one.settings.model.bytes_per_page(name, core.page_size, tp)
        key = f"components.{name}"
        found |= {f"{key}.page_bytes": size, f"{key}.page_bytes_per_rank": size}
        found[f"{key}.page_bytes_total"] = size * tp
        for tier, pages in (("device", core.device_pages[place]), ("host", core.host_pages[place])):
            found[f"{key}.capacity.{tier}"] = pages
            found[f"{key}.pool_bytes_per_rank.{tier}"] = pages * size
            found[f"{key}.pool_bytes_total.{tier}"] = pages * size * tp
            found[f"{key}.cached_at_rest.{tier}"] = rest[f"{tier} {name}"]["cached"]
            found[f"{key}.garbage_at_rest.{tier}"] = rest[f"{tier} {name}"]["garbage"]
        if len(core.components) == 1:
            found[f"{key}.most_in_use"] = found[f"{key}.evicted_along"] = "nothing"
    return found


def _of_checks(one: Judged) -> Figures:
    watch = one.watch
    found: Figures = {
        "checks.level": one.settings.check,
        "checks.violations": 0,
        "checks.not_judged": "",
    }
    found["checks.operations"] = one.pages.operations if watch else 0
    found["checks.incremental"] = one.pages.operations if watch else 0
    found["checks.full"] = watch.full if watch else 0
    assert watch is None or one.run.checks.full > one.pages.operations // 64 - 1
    return found


def _world(one: Judged) -> TimedResult:
    """The same run, without any account."""
    settings = one.settings
    ranks, speed = settings.parallelism, settings.speed
    options = WorldOptions(settings.check, settings.seed, ranks, settings.times, speed=speed)
    core, model, hardware = settings.core, settings.model, settings.hardware
    return World(one.kept, core, model, hardware, engine=settings.engine, options=options).run()


def _of_links(one: Judged) -> Figures:
    """What only the simulator knows: times of the link, and the two parts of a pass."""
    plain = _world(one)
    latency = one.run.latency
    assert latency is not None
    assert latency.requests == plain.requests
    found: Figures = {"digest": plain.digest}
    tp = one.settings.tp
    for way, use in (("d2h", plain.d2h), ("h2d", plain.h2d)):
        found[f"transfers.{way}.busy_s"] = use.busy_ns / figures.NS_PER_S
        found[f"transfers.{way}.bytes_per_rank"] = use.bytes
        found[f"transfers.{way}.bytes_total"] = use.bytes * tp
    if one.watch is not None:
        found["checks.byte_checks"] = plain.byte_checks
        found["checks.access_checks"] = plain.access_checks
    for name in ("load", "compute"):
        times = [getattr(each, f"{name}_ns") for each in plain.requests]
        for key, value in figures.spread_s(times).items():
            found[f"latency_s.{name}.{key}"] = value
    return found


def _same_parts(one: Judged, accounts: Accounts) -> None:
    assert one.run.latency is not None
    for told in one.run.latency.requests:
        entry = accounts.entries[told.request]
        wrong = figures.in_parts(told.request, entry, told.load_ns, told.compute_ns)
        assert not wrong, wrong


def _turns(one: Judged, accounts: Accounts) -> list[Figures]:
    """By turn of a conversation: a request that waits for another and repeats its whole prompt; if
    none waits, one whose prompt extends an earlier prompt."""
    turn: dict[int, int] = {}
    if all(job.after < 0 for job in one.paged.jobs):
        turn = _turns_of_prompts(one.trace.paged(one.trace.block_size or one.paged.page_size))
        return _by_turn(turn, accounts)
    keys = {job.index: one.paged.prompt_key(job) for job in one.paged.jobs}
    for job in one.paged.jobs:
        turn[job.index] = 1
        if job.after < 0:
            continue
        before = one.paged.jobs[job.after]
        whole = before.input_length // one.paged.page_size
        repeated = keys[job.index].first(whole) == keys[job.after].first(whole)
        if whole and repeated and job.input_length > before.input_length:
            turn[job.index] = turn[job.after] + 1
    return _by_turn(turn, accounts)


def _turns_of_prompts(paged: Paged) -> dict[int, int]:
    """Each prompt is compared with every earlier one; the longest that it extends is the turn
    before it, of these the latest. A prompt that goes on in more than 8 ways is none."""
    prompts = {
        job.index: paged.prompt_key(job).first(job.input_length // paged.page_size).page_digests()
        for job in paged.jobs
    }
    ways: dict[bytes, set[bytes]] = {}
    for pages in prompts.values():
        for page, following in pairwise(pages):
            ways.setdefault(page, set()).add(following)
    turn: dict[int, int] = {}
    for job in paged.jobs:
        longest, turn[job.index] = 0, 1
        for other in paged.jobs[: job.index]:
            pages = prompts[other.index]
            extends = prompts[job.index][: len(pages)] == pages
            longer = job.input_length > other.input_length
            few = pages and len(ways.get(pages[-1], ())) <= 8
            if extends and longer and few and len(pages) >= longest:
                longest, turn[job.index] = len(pages), turn[other.index] + 1
    return turn


def _by_turn(turn: dict[int, int], accounts: Accounts) -> list[Figures]:
    if max(turn.values()) == 1:
        return []
    found: list[Figures] = []
    for number in sorted({turn[index] for index in accounts.served}):
        some = [entry for index, entry in accounts.served.items() if turn[index] == number]
        total, hit = sum(each.input_tokens for each in some), sum(each.hit_tokens for each in some)
        found.append(
            {
                "turn": number,
                "requests": len(some),
                "input_tokens": total,
                "hit_tokens": hit,
                "hit_rate": hit / total,
            }
        )
    return found


def _compare_lookups(one: Judged, accounts: Accounts) -> None:
    core = one.settings.core
    if len(core.components) == 1:
        assert "lookups" not in one.found
        return
    rows: Any = one.found["lookups"]
    expected = figures.lookups(accounts, core.components, one.ceiling, core.page_size)
    assert [{key: row[key] for key in row if key != "because"} for row in rows] == expected
    _sums_of_lookups(one, expected)


def _sums_of_lookups(one: Judged, rows: list[Figures]) -> None:
    """What each component alone would have hit, and what ended the hits."""
    lookups, size = one.run.lookups, one.settings.core.page_size
    depths: list[Any] = [row["depths"] for row in rows]
    for name, pages in lookups.alone().items():
        assert pages * size == sum(depth[name] for depth in depths)
    capped = lookups.capped()
    backbone = one.settings.core.components[0]
    assert [*capped] == ["", "unseen", *one.settings.core.components, "together"]
    for cap, group in capped.items():
        some: list[Any] = [row for row in rows if row["capped_by"] == cap]
        assert group.lookups == len(some)
        lost = {}
        for row in some:
            hit, ceiling = row["device"] + row["host"], one.ceiling[row["request"]]
            reached = (
                -(-ceiling // size) * size
                if cap in (backbone, "unseen")
                else row["depths"][backbone]
            )
            lost[row["request"]] = max(0, reached - hit) // size
        assert group.lost_pages == sum(lost.values()), cap
        costliest = sorted(lost, key=lambda index: (-lost[index], index))[:3]
        assert [each.request for each in group.examples] == costliest


def _compare_records(one: Judged, accounts: Accounts) -> None:
    rows = [json.loads(line) for line in records.lines(one.trace, one.run)]
    assert [row["request"] for row in rows] == [*accounts.served]
    times = (
        {} if one.run.latency is None else {each.request: each for each in one.run.latency.requests}
    )
    for row in rows:
        index = row["request"]
        entry = accounts.entries[index]
        expected = figures.record(index, entry, one.ceiling[index], one.timed)
        expected["line"] = one.trace.line_numbers[index]
        expected["output_tokens"] = one.trace.jobs[index].output_length
        why = one.pages.misses[index]
        expected["hit_ended_by"] = why.ended_by
        expected["evicted_for_request"] = why.gone_for
        expected["evicted_at_ns"] = why.gone_ns if one.timed else None
        if one.timed:
            expected["load_ns"] = times[index].load_ns
            expected["compute_ns"] = times[index].compute_ns
        assert row == expected, f"record {index}: expected {expected}, found {row}"
        assert one.run.history is not None
        miss = one.run.history.misses[index]
        assert (miss.hit_pages, miss.from_host) == (entry.hit_pages, why.from_host)
        assert one.run.history.refused.get(index, {}) == one.pages.refused.get(index, {})


@pytest.mark.one_in(16)
@pytest.mark.parametrize(
    ("mode", "make", "at"),
    [("timed", talks, 2), ("timed", blocks, 4), ("hits", talks, 5), ("hits", blocks, 1)],
)
def test_a_replay_counts_what_the_accounts_count(mode: str, make: Any, at: int) -> None:
    sizes = dict(_SIZES[at])
    if mode == "hits":
        for timed in ("speed", "max_running", "token_budget"):
            sizes.pop(timed, None)
    checked = at == 1 or (at == 4 and make is talks)
    judge(make(at, 36, 2 + 20 * at), options(mode=mode, **sizes), checked=checked)


def test_the_tables_of_the_history_grow_with_many_pages() -> None:
    given = options(mode="hits", page_size=1, device_pages=2800, host_pages=2000)
    judge(blocks(2, 36, 2), given)


def test_prompts_above_the_ceiling() -> None:
    judge(late(), options(device_pages=200, host_pages=0))


def test_pools_in_which_nothing_is_evicted() -> None:
    sizes = {"device_pages": 2_000, "host_pages": 0, "swa_tokens": 20_000, "mamba_states": 400}
    judge(talks(3, 24, 40), options(**_HYBRID, **sizes))
