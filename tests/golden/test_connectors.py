"""The connectors: `PrefixCache` of transformers, with a restart; vLLM's under a stand-in for its
scheduler. That of SGLang has tests/sglang."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

from .golden import ROOT, same

torch = pytest.importorskip("torch", exc_type=ImportError)

# -- transformers


@pytest.fixture(scope="module")
def prefixes() -> Any:
    pytest.importorskip("transformers", exc_type=ImportError)
    torch.set_num_threads(1)
    return pytest.importorskip("tests.golden.prefixes", exc_type=ImportError)


@pytest.fixture(scope="module")
def conversations(prefixes: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """By family, hits and tokens: the first time, again, from host after others, after the memory
    was cleared, with other weights; and in another process."""
    folder = tmp_path_factory.mktemp("prefixes")
    found = {}
    for family in prefixes.FAMILIES:
        with prefixes.opened(family, str(folder)) as cache:
            ids = prefixes.prompt()
            rows = [prefixes.served(cache, ids) for _ in range(2)]
            for seed in (4, 5, 6):
                prefixes.served(cache, prefixes.prompt(seed))
            assert cache.flush(PATIENCE_S)
            rows.append(prefixes.served(cache, ids))
            assert cache.flush(PATIENCE_S)
            cache.clear()
            rows.append(prefixes.served(cache, ids))
        with prefixes.opened(family, folder, seed=2) as other:
            rows.append(prefixes.served(other, ids))
        found[family] = rows
    words = [sys.executable, "-m", "tests.golden.prefixes", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout.splitlines()[-1])
    return {family: [*found[family], again[family]] for family in found}


@pytest.mark.parametrize("family", ["full", "window", "state"])
def test_prompts_hit_and_a_restart_hits_from_disk(family: str, conversations: Any) -> None:
    rows = conversations[family]
    first, *again, _, restarted = [tokens for _, tokens in rows]
    assert all(one == first for one in (*again, restarted))
    hits = [hits for hits, _ in rows]
    assert hits[0] == hits[4] == {"device": 0, "host": 0, "disk": 0}, "nothing was there"
    assert hits[5] == hits[3], "another process finds what this one did"
    same("connectors", f"transformers {family}", hits)


# -- vLLM


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
