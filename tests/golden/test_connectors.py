"""vLLM's connector under a stand-in for its scheduler. Those of transformers and of SGLang have
tests/transformers and tests/sglang."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .playing import same


@pytest.fixture
def engines() -> Iterator[Any]:
    from tests.vllm.playing import Playing, Setting

    opened: list[Playing] = []

    def one(**setting: Any) -> Playing:
        opened.append(Playing(Setting(**setting)))
        return opened[-1]

    yield one
    for playing in opened:
        playing.close()


def hit(playing: Any) -> tuple[int, int]:
    """Tokens of a prompt that vLLM had, and that were loaded. Every pass compares what it reads."""
    request = playing.request([1, 2, 0] * 20)
    playing.settle()
    found: tuple[int, int] = playing.engine.hits[request.request_id]
    return found


@pytest.mark.parametrize("kinds", ["full", "window", "state", "all"])
def test_vllm(kinds: str, engines: Any, tmp_path: Path) -> None:
    """First nothing, then vLLM's own, then from host; after a restart from the store, on two ranks
    too; with other weights never."""
    found = []
    for ranks in (1, 2):
        given = {"kinds": kinds, "store": tmp_path / str(ranks), "ranks": ranks}
        one = engines(**given)
        found += [hit(one), hit(one)]
        one.engine.pool.forget()
        found.append(hit(one))
        found += [hit(engines(**given)), hit(engines(**given, weights="others"))]
    assert found[4] == found[9] == (0, 0)
    assert found[2][0] == found[3][0] == 0
    same("connectors", f"vllm {kinds}", found)
