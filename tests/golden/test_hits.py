"""Hits equal, to the token, those of references that are written here, at every capacity, on one
tier and on two; and those that were recorded of the conversation trace, of which the last are also
what kvcache-simulator 0.1.3 counts."""

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.conversation import conversation
from traces.cli import main

from .playing import GOLDEN

BLOCK = 512
Prompt = tuple[tuple[int, ...], int]  # ids of blocks, which stand for all before them; tokens


def drawn(seed: int, requests: int = 40, longest: int = 6) -> list[Prompt]:
    """Walks down a tree of blocks, of which the last may be partial."""
    draw, prompts = Random(seed), []
    for _ in range(requests):
        walk = [draw.randrange(3) for _ in range(draw.randint(1, longest))]
        ids = [
            sum((step + 1) << 2 * at for at, step in enumerate(walk[: n + 1]))
            for n in range(len(walk))
        ]
        prompts.append((tuple(ids), BLOCK * len(ids) - draw.choice([0, 0, 1, 200, 511])))
    return prompts


def trace_of(prompts: list[Prompt], folder: Path) -> str:
    path = folder / "trace.jsonl"
    lines = [
        {"timestamp": at * 1000, "input_length": tokens, "output_length": 1, "hash_ids": ids}
        for at, (ids, tokens) in enumerate(prompts)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def lru(prompts: list[Prompt], capacity: int, page: int) -> list[int]:
    """Hit tokens of each request under LRU. A page is the blocks up to its end, and its end."""
    used: dict[tuple[tuple[int, ...], int], int] = {}
    tick, hits = 0, []
    for ids, tokens in prompts:
        pages = [(ids[: -(-end // BLOCK)], end) for end in range(page, tokens + page, page)]
        leading = next((at for at, page in enumerate(pages) if page not in used), len(pages))
        hits.append(min(leading * page, tokens))
        for item in pages[leading:]:
            if len(used) == capacity:
                inner = {(other[: -(-(end - page) // BLOCK)], end - page) for other, end in used}
                leaves = [other for other in used if other not in inner and other not in pages]
                del used[min(leaves, key=used.__getitem__)]
            used[item] = -1
        for value in reversed(pages):  # the beginning ends as the most recent
            tick += 1
            used[value] = tick
    return hits


def optimum(prompts: list[Prompt], capacity: int) -> int:
    """The most tokens that any way to keep pages hits, by trying all of them."""

    @cache
    def best(at: int, numbers: frozenset[int]) -> int:
        if at == len(prompts):
            return 0
        ids, tokens = prompts[at]
        leading = next((n for n, item in enumerate(ids) if item not in numbers), len(ids))
        hit = min(leading * BLOCK, tokens)
        return hit + max(best(at + 1, kept) for kept in subsets(numbers | set(ids), capacity))

    return best(0, frozenset())


@cache
def subsets(numbers: frozenset[int], size: int) -> list[frozenset[int]]:
    """The largest parts of the pages that fit."""
    if len(numbers) <= size:
        return [numbers]
    return list({part for item in numbers for part in subsets(numbers - {item}, size)})


def curve(path: str, folder: Path, *words: str) -> dict[str, Any]:
    out = folder / "curve.json"
    assert main(["curve", path, "--page-size", str(BLOCK), *words, "--json", str(out)]) == 0
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def hits_of(
    path: str, folder: Path, page: int, device: int, host: int, *more: str
) -> list[tuple[int, int]]:
    """Hit tokens of each request, on the device and on both tiers."""
    rows, pools = folder / "rows.jsonl", ["--device-pages", str(device), "--host-pages", str(host)]
    words = ["--mode", "hits", "--check", "off", "--page-size", str(page), *pools, *more]
    assert main(["replay", path, *words, "--requests", str(rows)]) == 0
    loads = [json.loads(line)["hit_tokens"] for line in rows.read_text().splitlines()]
    return [(item["device"], item["device"] + item["host"]) for item in loads]


@pytest.mark.parametrize("capacity", [6, 8, 11, 17, 30, 400])
def test_one_tier_hits_as_lru_request_by_request(capacity: int, tmp_path: Path) -> None:
    prompts = drawn(capacity)
    result = hits_of(trace_of(prompts, tmp_path), tmp_path, BLOCK, capacity, 0)
    assert result == [(hit, hit) for hit in lru(prompts, capacity, BLOCK)]


@pytest.mark.parametrize(("device", "host", "page"), [(6, 9, 512), (8, 20, 512), (27, 60, 128)])
def test_two_tiers_hit_as_one_of_the_larger_size_or_of_the_sum_if_exclusive(
    device: int, host: int, page: int, tmp_path: Path
) -> None:
    prompts = drawn(host)
    result = hits_of(trace_of(prompts, tmp_path), tmp_path, page, device, host)
    assert sum(item for item, _ in result) == sum(lru(prompts, device, page))
    assert sum(both for _, both in result) == sum(lru(prompts, host, page))
    more = ("--write-policy", "write_back", "--exclusive")
    result = hits_of(trace_of(prompts, tmp_path), tmp_path, page, device, host, *more)
    assert sum(both for _, both in result) == sum(lru(prompts, device + host, page))


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_the_most_that_any_choice_hits(seed: int, tmp_path: Path) -> None:
    prompts = [(ids, BLOCK * len(ids)) for ids, _ in drawn(seed, 9, 3)]
    sizes = (3, 4, 5)
    words = ["--capacities", ",".join(map(str, sizes)), "--policies", "optimum"]
    result = curve(trace_of(prompts, tmp_path), tmp_path, *words)["policies"]
    assert result["optimum"]["hit_tokens"] == [optimum(prompts, size) for size in sizes]
    assert result["optimum"] != result["lru"]


@pytest.mark.parametrize("part", GOLDEN["conversation"])
def test_the_conversation_trace_has_the_hits_that_it_had(part: str, tmp_path: Path) -> None:
    wanted = GOLDEN["conversation"][part]
    result = curve(str(conversation()), tmp_path, *part.split())["policies"]
    assert {name: item["hit_tokens"] for name, item in result.items()} == wanted
