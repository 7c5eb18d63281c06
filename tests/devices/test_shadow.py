"""The shadow over real bytes: clean runs are clean, and each planted fault is found and named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hicache.core.types import Pages, Tier
from hicache.devices.base import DeviceOptions
from hicache.devices.cpu import CpuDevice
from hicache.memory import pools
from hicache.memory.layouts import Bytes, copy_direct
from sim.device.hazards import Hazards
from sim.errors import SimError, WrongBytesError
from tests.tiny import pages, tiny

from .shadow_run import ShadowRun, Sizes, drop_each_wait

SIZES = Sizes(tiny(3), 2)


@contextmanager
def made(sizes: Sizes) -> Iterator[CpuDevice]:
    pages = {"full": sizes.device_pages}, {"full": sizes.host_pages}
    with CpuDevice(
        sizes.model,
        sizes.page_size,
        *pages,
        DeviceOptions(layout="layer_first", io_backend="direct"),
    ) as device:
        yield device


@pytest.fixture
def run() -> Iterator[ShadowRun]:
    with made(SIZES) as device:
        yield ShadowRun(device, SIZES)


def test_a_clean_run_reports_nothing_and_covers_both_directions(run: ShadowRun) -> None:
    run.serve_random(60)
    assert run.wrong == []
    assert run.shadow.spoiled > 20, "no load was spoiled first: nothing was shown"
    assert run.shadow.intact > 20, "no poison was looked at: nothing was shown"
    assert set(run.shadow.waits) == {"compute", "write", "load"}


def test_every_dropped_stream_wait_is_caught() -> None:
    found = drop_each_wait(made, SIZES, 18)
    assert found.waits > 20
    assert found.waits // 2 < found.caught <= found.waits
    assert min(found.accesses, found.spoiled, found.intact, found.reads) > 10


def test_an_unneeded_wait_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hazards, "access", lambda *_: None)
    with pytest.raises(SimError, match=r"wait 0 of \d+, on stream write: expected a hazard"):
        drop_each_wait(made, SIZES, 10)


def test_a_load_that_misses_a_page_reads_bytes_of_no_request(
    run: ShadowRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = copy_direct

    def short(source: Bytes, here: Pages, target: Bytes, there: Pages, layers: range) -> None:
        to_host = target.shape[1] == 14
        end = len(here) if to_host or len(here) < 2 else -1
        whole(source, here[:end], target, there[:end], layers)

    run.serve_random(20)
    assert run.wrong == []
    monkeypatch.setattr(pools, "copy_direct", short)
    run.serve_random(40, seed=1)
    assert run.wrong


def test_a_write_to_a_free_page_is_found(run: ShadowRun) -> None:
    run.serve_random(30)
    for tier in (Tier.DEVICE, Tier.HOST):
        run.shadow.freed(tier, "full", pages(3))
        run.wait_for(*run.shadow.sweep())
        assert run.shadow.check()
        (pool,) = run.shadow.inner.arena.pools(tier, "full")
        pool.view[1, 3, 0, 1, 0, 2] ^= 1
        run.wait_for(*run.shadow.sweep())
        with pytest.raises(
            WrongBytesError, match=f"{tier.name.lower()} page 3 of full was written"
        ):
            run.shadow.check()
        run.shadow._compared.clear()
        pool.view[1, 3, 0, 1, 0, 2] ^= 1
