"""One pool of blocks for several groups of layers, without the engine: what vLLM said in runs that
were recorded, and the order in which blocks are taken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.traces.engines.test_hits import RECORDED, blocks, nothing
from tests.traces.rig import Capsys, Patch, fails, mooncake, write
from traces.commands import _engine_twin
from traces.engines.hits.runs import Limits, fewest_blocks, predicted
from traces.replaying.one_pool import BlockPool

HYBRIDS = json.loads((Path(__file__).parent / "recorded" / "hybrids.json").read_text())["runs"]
TRACE = blocks(*RECORDED["trace"])


def limits_of(run: dict[str, object]) -> Limits:
    return Limits(**run["limits"] | {"windows": tuple(run["limits"]["windows"])})  # type: ignore[index,operator]


@pytest.mark.parametrize(
    "run", HYBRIDS, ids=lambda run: f"{run['family']}-{run['limits']['at_once']}"
)
def test_one_pool_hits_what_vllm_hit(run: dict[str, object]) -> None:
    told = predicted(TRACE, limits_of(run), "", nothing)
    assert (told.hits, told.preempted) == (run["cached"], run["preempted"])
    assert len({*told.hits}) > 1  # so equal by no accident


def test_what_windows_keep_decides() -> None:
    run = HYBRIDS[0]
    for other in ({"retention": None}, {"windows": (96, 96, 96, 96, 96, 0)}):
        assert predicted(TRACE, replace(limits_of(run), **other), "", nothing).hits != run["cached"]


@pytest.mark.parametrize("run", RECORDED["runs"])
def test_it_keeps_twice_what_is_computed_twice(run: dict[str, object]) -> None:
    """The core does not, and differs for one request of these."""
    limits = Limits(**run["limits"] | {"one_pool": True})  # type: ignore[operator]
    assert predicted(TRACE, limits, "", nothing).hits == run["cached"]


def test_a_window_that_is_gone_shortens_a_hit() -> None:
    """Two requests under way at once take all blocks, so the first window's are taken again."""
    same = (160, 1, [1, 2, 3, 4, 5])
    paged = blocks(same, (160, 1, [6, 7, 8, 9, 10]), same)
    limits = Limits(64, 4096, 256, False, 1, (64, 0), True)
    assert predicted(paged, limits, "", nothing).hits == [0, 0, 128]
    small = Limits(11, 4096, 256, False, 1, (64, 0), True)
    assert predicted(paged, small, "", nothing).hits[2] < 128


def test_the_smallest_pool_serves_the_largest_request() -> None:
    paged = blocks((160, 40, [1, 2, 3, 4, 5]))
    limits = Limits(fewest_blocks(paged, 3), 4096, 256, False, 1, (64, 64, 0), True)
    assert predicted(paged, limits, "", nothing).hits == [0]


def test_blocks_are_taken_in_the_order_of_vllm() -> None:
    """Those that were never full first, then those that were given back first."""
    pool = BlockPool(6)
    first, second = pool.take(3), pool.take(2)
    for block in first[:2]:
        pool.file(block, (0, block))
    pool.give(first[::-1])
    pool.file(second[0], (0, 9))
    pool.give(second)
    assert pool.take(6) == [second[1], first[2], 5, first[1], first[0], second[0]]
    assert pool.find((0, 9)) is None


def test_a_block_that_is_hit_is_not_free() -> None:
    pool = BlockPool(2)
    [block, _] = pool.take(2)
    pool.file(block, (0, 7))
    pool.give([block])
    found = pool.find((0, 7))
    assert found == block
    pool.share([found, None])
    assert pool.free == 0


def test_states_are_refused_before_vllm_starts(
    capsys: Capsys, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(_engine_twin, "python_of", lambda given: pytest.fail("looked for vLLM"))
    trace = str(write(tmp_path / "trace.jsonl", mooncake([1], 32)))
    given = ["twin", trace, "--engine", "vllm", "--family", "qwen3-next"]
    expected = "--family: expected full attention and sliding windows, found qwen3-next"
    assert expected in fails(capsys, *given)


def test_a_pool_for_several_groups_is_larger(
    capsys: Capsys, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(_engine_twin, "python_of", lambda given: "python")
    trace = str(write(tmp_path / "trace.jsonl", mooncake([1, 2], 1024, output_length=1)))
    given = ["twin", trace, "--engine", "vllm", "--family", "gemma3", "--device-pages", "22"]
    assert "--device-pages: expected at least 23 for the largest" in fails(capsys, *given)
