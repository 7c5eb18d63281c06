"""Samples of a running system: counts that add up, both halves compared, each fault named."""

from __future__ import annotations

import numpy as np
import pytest

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.devices.base import CopyJob, Direction
from hicache.runtime.samples import Report, Row, Samples

from .overlapped import LAYERS, MODEL, PAGE, POOLS, Overlapped

D2H, H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE
PAGE_BYTES = MODEL.bytes_per_page("full", PAGE)


def row(report: Report, direction: Direction) -> Row:
    (found,) = (row for row in report.rows if row.direction is direction)
    return found


def test_at_rate_one_everything_is_compared_twice() -> None:
    run = Overlapped(8, 14)
    run.serve_random(50)
    report = run.samples.report()
    run.close()
    backup, load = row(report, D2H), row(report, H2D)
    assert backup.copied == backup.pages
    assert backup.bytes == backup.pages * PAGE_BYTES
    assert load.copied == load.pages == load.links > LAYERS
    assert load.bytes == load.pages * PAGE_BYTES // LAYERS
    assert backup.links == report.mismatches == report.failed == 0
    assert report.first == ()


def test_a_rate_is_kept_and_loads_follow_the_draws_of_backups() -> None:
    run = Overlapped(200, 400, rate=0.25)
    device = run.shadow
    every = np.arange(200)
    write, load = device.stream("write"), device.stream("load")
    for turn in range(20):
        device.copy(write, CopyJob(D2H, "full", every, every[::-1].copy(), (0, LAYERS), "backup"))
        backed = device.record(write)
        device.wait(load, backed)
        device.copy(load, CopyJob(H2D, "full", every[::-1].copy(), every, (0, LAYERS), "load"))
        loaded = device.record(load)
        run.cpu.synchronize(loaded)
        if turn == 0:
            early = run.samples.report()
            assert sum(row.pages for row in early.rows) == 0, "counted before a mark was seen"
        assert device.query(backed)
        assert device.query(loaded)
    report = run.samples.report()
    run.close()
    down, up = row(report, D2H), row(report, H2D)
    assert down.copied == up.copied == 4000
    assert 850 < down.pages < 1150
    assert down.pages == up.pages == up.links
    assert report.mismatches == 0


def test_rate_zero_compares_nothing() -> None:
    run = Overlapped(8, 14, rate=0)
    run.serve_random(20)
    report = run.samples.report()
    run.close()
    assert all(one.copied > 0 and one.pages == one.bytes == 0 for one in report.rows)


def test_a_host_page_that_changes_after_its_backup_is_found_at_its_load() -> None:
    run = Overlapped(8, 14)
    run.serve_random(30)
    (pool,) = run.cpu.arena.pools(Tier.HOST, "full")
    pool.view[2, :, 1, 0, 1, 3] ^= 1
    run.serve_random(30, seed=1)
    report = run.samples.report()
    run.close()
    assert row(report, H2D).mismatches > 0
    assert row(report, D2H).mismatches == 0
    assert "h2d, pool kv, host page" in report.first[0]
    assert "layer 2 changed since its backup" in report.first[0]
    assert run.wrong, "and the model read it"


def test_failed_copies_are_counted_separately() -> None:
    calls = []

    def fault(direction: Direction, *_: object) -> bool:
        calls.append(direction)
        return direction is D2H and len(calls) % 3 == 0

    run = Overlapped(8, 14, fault=fault)
    run.serve_random(40)
    report = run.samples.report()
    run.close()
    assert report.failed > 0
    assert report.mismatches == 0
    assert run.wrong == []
    assert row(report, D2H).pages + report.failed == row(report, D2H).copied


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan")])
def test_an_invalid_rate_is_refused(rate: float) -> None:
    run = Overlapped(8, 14)
    with pytest.raises(CallerError, match="sample: expected a rate from 0 to 1, found"):
        Samples(run.cpu, POOLS, rate)
    run.close()
