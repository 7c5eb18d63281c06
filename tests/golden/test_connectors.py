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

    def single(**setting: Any) -> Playing:
        opened.append(Playing(Setting(**setting)))
        return opened[-1]

    yield single
    for playing in opened:
        playing.close()


def hit(playing: Any) -> tuple[int, int]:
    """Tokens of a prompt that vLLM had, and that were loaded. Every pass compares what it reads."""
    request = playing.request([1, 2, 0] * 20)
    playing.settle()
    numbers: tuple[int, int] = playing.engine.hits[request.request_id]
    return numbers


@pytest.mark.parametrize("kinds", ["full", "window", "state", "all"])
def test_vllm(kinds: str, engines: Any, tmp_path: Path) -> None:
    """First nothing, then vLLM's own, then from host; after a restart from the store, on two ranks
    too; with other weights never."""
    result = []
    for ranks in (1, 2):
        value = {"kinds": kinds, "store": tmp_path / str(ranks), "ranks": ranks}
        item = engines(**value)
        result += [hit(item), hit(item)]
        item.engine.pool.forget()
        result.append(hit(item))
        result += [hit(engines(**value)), hit(engines(**value, weights="others"))]
    assert result[4] == result[9] == (0, 0)
    assert result[2][0] == result[3][0] == 0
    same("connectors", f"vllm {kinds}", result)
