"""The curves against plain replays, capacity by capacity, and against the real core."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.config import Config
from traces.curves import distances, replay, runs
from traces.curves.distances import exclusive, inclusive, lru_curve
from traces.curves.optimum import Optimum
from traces.curves.splits import split
from traces.formats._open import parse
from traces.formats.base import Lines, Paged, Trace
from traces.generators import base
from traces.replaying.account import Account, ceiling_of
from traces.replaying.hits import HitsReplay
from traces.terminal.rows import add_rows, rows

from . import plain_policies
from .reference import random_traces
from .rig import HEADER, Patch, mooncake, native, read, replay_hits

Records = list[dict[str, Any]]
FEW = settings(max_examples=40, deadline=None)


def paths_of(paged: Paged) -> list[list[int]]:
    return [paged.chain(job).tolist() for job in paged.jobs]


def tokens_of(paged: Paged, hits: Sequence[int], first: int = 0) -> int:
    """The prompt tokens in this many leading pages of each request from `first` on."""
    return sum(
        min(pages * paged.page_size, job.input_length)
        for pages, job in zip(hits[first:], paged.jobs[first:], strict=True)
    )


@settings(max_examples=60, deadline=None)
@given(
    random_traces(),
    st.sampled_from([0, 5, 1 << 10]),
    st.sampled_from([2, 1 << 11]),
    st.sampled_from([128, 512]),
)
def test_lru_equals_a_plain_replay_at_every_capacity(
    records: Records, batch_uses: int, block: int, page_size: int
) -> None:
    """In batches of one request, of a few requests, and of the whole trace; in several blocks of
    requests and in one; every first request."""
    paged = read(*records).paged(page_size)
    paths = paths_of(paged)
    with Patch.context() as patch:
        patch.setattr(runs, "BATCH_USES", batch_uses)
        patch.setattr(distances, "_BLOCK", block)
        curve = lru_curve(paged)
        half = lru_curve(paged, len(paths) // 2)
    assert curve.largest == max(map(len, paths))
    assert curve.unique == len({page for path in paths for page in path})
    for capacity in range(1, curve.unique + 2):
        plain = plain_policies.lru(paths, capacity)
        assert curve.hit_tokens(capacity) == tokens_of(paged, plain)
        assert half.hit_tokens(capacity) == tokens_of(paged, plain, len(paths) // 2)
    assert curve.unbounded == int(ceiling_of(paged, whole_prompts=True).sum())
    assert curve.hit_tokens(curve.working_set) == curve.unbounded
    assert not curve.working_set or curve.hit_tokens(curve.working_set - 1) < curve.unbounded


@FEW
@given(random_traces())
def test_the_curve_is_straight_between_its_bends(records: Records) -> None:
    curve = lru_curve(read(*records).paged(128))
    bends = [0, *curve.bends().tolist(), curve.unique + 1]
    tokens = curve.tokens_at(np.arange(curve.unique + 2))
    assert np.interp(np.arange(curve.unique + 2), bends, tokens[bends]).tolist() == tokens.tolist()


@FEW
@given(random_traces(), st.integers(0, 6), st.integers(0, 6))
def test_lru_and_inclusive_tiers_equal_the_core(records: Records, spare: int, more: int) -> None:
    paged = read(*records).paged(512)
    curve = lru_curve(paged)
    device, host = curve.largest + spare, curve.largest + spare + more
    alone, _, _ = replay_hits(paged, device)
    assert curve.hit_tokens(device) == alone.whole().hit_tokens.all
    both, _, _ = replay_hits(paged, device, host=host)
    found = inclusive(curve, device, np.array([host]))
    assert found.device_tokens[0] == both.whole().hit_tokens.device
    assert found.host_tokens[0] == both.whole().hit_tokens.host


def generated(name: str, *options: str) -> Trace:
    """The trace that `hicache generate` makes."""
    generator = base.load(name)
    parser = argparse.ArgumentParser()
    add_rows(parser, rows(generator.Options))
    record = generator.Options.read(parser.parse_args(options))
    lines = (line.encode() for line in base.text(name, generator, record))
    return parse(Lines(name, lines))


@pytest.mark.parametrize(("name", "options"), [("multiturn", "--clients=5"), ("random_tree", "")])
def test_a_partial_page_costs_the_core_at_most_one_page(name: str, options: str) -> None:
    """While it runs, a request also has a page that its path does not: of the last tokens, which no
    other request can hit. So the core hits what LRU hits with its pool or with one page less."""
    size = ("--rounds", "5") if name == "multiturn" else ("--requests", "60")
    paged = generated(name, *size, *options.split()).paged(64)
    curve = lru_curve(paged)
    for capacity in range(curve.largest + 1, curve.unique + 2, max(1, curve.unique // 12)):
        account, _, _ = replay_hits(paged, capacity)
        found = account.whole().hit_tokens.all
        assert curve.hit_tokens(capacity - 1) <= found <= curve.hit_tokens(capacity)


@pytest.mark.parametrize(("device", "host"), [(250, 250), (400, 800), (800, 300), (250, 2500)])
def test_exclusive_tiers_hit_together_what_the_core_hits(device: int, host: int) -> None:
    """Both together are one LRU; the core has further host pages, which exchanges need."""
    paged = generated("multiturn", "--clients", "12", "--rounds", "6").paged(16)
    curve = lru_curve(paged)
    account = Account(paged.jobs, 16, ceiling_of(paged, whole_prompts=True))
    config = Config(
        page_size=16,
        device_pages=(device,),
        host_pages=(host + curve.largest,),
        write_policy="write_back",
        exchange_pages=(curve.largest,),
    )
    HitsReplay(paged, config, account, ()).run(lambda done: None)
    found = exclusive(curve, device, np.array([host]))
    both = int(found.device_tokens[0] + found.host_tokens[0])
    assert both == curve.hit_tokens(device + host)
    assert curve.hit_tokens(device + host - 1) <= account.whole().hit_tokens.all <= both
    assert account.whole().hit_tokens.host > 0


def test_the_plain_policies_are_those_that_are_replayed() -> None:
    assert sorted(plain_policies.PLAIN) == list(replay.POLICIES)


@pytest.mark.parametrize("policy", sorted(plain_policies.PLAIN))
@settings(max_examples=30, deadline=None)
@given(records=random_traces())
def test_a_replayed_policy_equals_plain_lists_at_every_capacity(
    policy: str, records: Records
) -> None:
    paged = read(*records).paged(512)
    paths, first = paths_of(paged), len(records) // 3
    for capacity in range(1, len({page for path in paths for page in path}) + 2):
        plain = plain_policies.PLAIN[policy](paths, capacity)
        found = replay.hit_tokens(replay.Paths(paged, first), replay.POLICIES[policy](capacity))
        assert found == tokens_of(paged, plain, first)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_optimum_equals_brute_force(data: st.DataObject) -> None:
    """Every content that a cache could have is tried, orphans included, for every first request."""
    walk = st.lists(st.integers(0, 1), min_size=1, max_size=3)
    walks = data.draw(st.lists(walk, min_size=1, max_size=6))
    records = [
        mooncake([int("1" + "".join(map(str, steps[: end + 1])), 2) for end in range(len(steps))])
        for steps in walks
    ]
    paged = read(*records).paged(512)
    first = data.draw(st.integers(0, len(records) - 1))
    optimum = Optimum(lru_curve(paged, first))
    for capacity in range(1, 4):
        best = plain_policies.most_pages(paths_of(paged), capacity, first)
        assert optimum.at(capacity).pages == best
        assert optimum.at(capacity).tokens == best * 512


@FEW
@given(random_traces(), st.sampled_from([128, 512]))
def test_no_policy_exceeds_the_optimum_and_none_the_bound(records: Records, page_size: int) -> None:
    paged = read(*records).paged(page_size)
    paths, first = paths_of(paged), len(records) // 2
    curve = lru_curve(paged, first)
    optimum = Optimum(curve)
    everyone = [*plain_policies.PLAIN.values(), plain_policies.lru]
    below = 0
    for capacity in range(1, curve.unique + 2):
        best = optimum.at(capacity)
        assert best.tokens <= best.bound <= curve.unbounded
        assert best.pages >= below, "more memory never costs pages"
        below = best.pages
        for policy in everyone:
            hits = policy(paths, capacity)
            assert sum(hits[first:]) <= best.pages
            assert tokens_of(paged, hits, first) <= best.bound
    assert optimum.at(curve.working_set).tokens == curve.unbounded


def conversations() -> Trace:
    """Two conversations of one tenant, and one request of another, that begin alike."""
    return read(
        HEADER | {"version": 2},
        native(("s", 96), ("a", 64), output=("b", 33), tenant="acme"),
        native(("s", 96), ("c", 32), output=("d", 1), tenant="zeta"),
        native(
            *(("s", 96), ("a", 64), ("b", 33), ("e", 31)),
            output=("f", 1),
            tenant="acme",
            after=0,
            delay=5,
        ),
    )


def test_tenants_and_sessions_are_counted_apart_in_one_cache() -> None:
    trace = conversations()
    curve = lru_curve(trace.paged(32))
    acme, zeta = split(trace, curve, "tenant")
    assert (acme.name, acme.requests, acme.input_tokens) == ("acme", 2, 160 + 224)
    assert (zeta.name, zeta.curve.unbounded, acme.curve.unbounded) == ("zeta", 96, 192)
    assert curve.unbounded == 96 + 192
    session, *_ = split(trace, curve, "session")
    assert (session.requests, session.curve.unbounded) == (2, 192)


def test_generated_tokens_of_the_request_itself_are_no_hits() -> None:
    """The output is in the cache for the next turn, but no prompt can hit it in its own request."""
    curve = lru_curve(conversations().paged(32))
    assert [curve.hit_tokens(pages) for pages in (0, 3, 7, 100)] == [0, 192, 288, 288]
