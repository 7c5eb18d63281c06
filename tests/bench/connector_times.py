"""What the connector costs and saves under vLLM: `HICACHE_VLLM=PYTHON python -m
tests.bench.connector_times`.

Two questions, of a model whose prefill takes longer than the host (`llama-wide`):

    first token   of a prompt whose first 2,000 tokens are on host, or on disk after a restart, as a
                  share of a cold one; goal: at most 15 %
    throughput    without a hit, with the connector (host tier; host and a file store) relative to
                  vLLM without it; goal: at least 97 %

What is compared alternates in one run, and the median of the ratios counts. Each ratio stands there
twice: of the wall clock, and of the processor time of the whole process, copies and stores with it,
which other programs on the machine disturb less. Not a test: nothing here asserts a time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from hicache.core.errors import CallerError
from traces.engines.models import VOCABULARY
from traces.engines.vllm import MODELS, Vllm, python_of

FAMILY = "llama-wide"
HIT = 2000
PROMPTS, ROUNDS, WARM = 8, 12, 3
_REQUESTS, _LENGTH, _ANSWER, _AT_ONCE = 8, 500, 16, 4
_HOST, _FULL = "1GB", "64MB"
Draw = Callable[[int], list[int]]
Seconds = tuple[float, float]  # of the wall, of the processor


def opened(python: str, connector: dict[str, Any] | None) -> Vllm:
    """An engine with one thread and room for the prompts."""
    engine = {"max_model_len": 4096, "num_gpu_blocks_override": 400}
    return Vllm(python, FAMILY, folder=str(MODELS), connector=connector, engine=engine, threads=1)


def first(engine: Vllm, tokens: Sequence[int]) -> tuple[int, Seconds]:
    """One request with vLLM's own cache emptied. Returns its hit and the time to its first
    token."""
    engine.ask({"do": "drop"}, 600.0)
    answer = engine.generate([{"tokens": list(tokens), "max_tokens": 1}], None)
    [one] = answer["answers"]
    engine.ask({"do": "idle"}, 600.0)
    return one["cached"], (one["first_s"], answer["processor_s"])


def said(what: str, ratios: Sequence[Seconds], goal: str) -> None:
    """Prints the medians and how far they spread."""
    middle = [statistics.median(side) for side in zip(*ratios, strict=True)]
    least, most = min(one[0] for one in ratios), max(one[0] for one in ratios)
    print(
        f"{what}: {middle[0]:.1%} by the wall clock ({least:.1%} to {most:.1%} in {len(ratios)}), "
        f"{middle[1]:.1%} by processor time; goal {goal}",
        flush=True,
    )


def share(one: Seconds, other: Seconds) -> Seconds:
    return one[0] / other[0], one[1] / other[1]


def first_tokens(python: str, draw: Draw) -> None:
    """Hits from host, and from disk after a restart, against cold prompts between them."""
    with tempfile.TemporaryDirectory(prefix="hicache-bench-") as folder:
        connector = {"host": _HOST, "storage": f"file:{Path(folder) / 'kv'}"}
        texts = [draw(HIT) for _ in range(PROMPTS)]
        colds, hosts, disks = list[Seconds](), list[Seconds](), list[Seconds]()
        with opened(python, connector) as engine:
            first(engine, draw(HIT))  # warm
            for text in texts:
                cold, took = first(engine, text + draw(8))
                hit, again = first(engine, text + draw(8))
                assert (cold, hit) == (0, HIT // 32 * 32), (cold, hit)
                colds.append(took)
                hosts.append(share(again, took))
            engine.end()
        print(
            f"a cold prompt of {HIT:,} tokens: {statistics.median(one[0] for one in colds):.2f} s"
        )
        said(f"first token, {HIT:,} tokens from host, of a cold one", hosts, "at most 15 %")
        with opened(python, connector) as engine:
            first(engine, draw(HIT))  # warm
            for text in texts:
                _, took = first(engine, draw(HIT + 8))
                hit, again = first(engine, text + draw(8))
                assert hit == HIT // 32 * 32, hit
                disks.append(share(again, took))
            engine.end()
        said(f"first token, {HIT:,} tokens from disk, of a cold one", disks, "at most 15 %")


def throughput(python: str, draw: Draw) -> None:
    """Engines with and without the connector, in turn, with prompts that are all new. The host tier
    is so small that it is full after the first turns, as that of a server which has run for long:
    none of its memory is touched for the first time."""
    with tempfile.TemporaryDirectory(prefix="hicache-bench-") as folder, ExitStack() as stack:
        ways: dict[str, dict[str, Any] | None] = {
            "without": None,
            "host": {"host": _FULL},
            "host and a file store": {"host": _FULL, "storage": f"file:{Path(folder) / 'kv'}"},
        }
        engines = {name: stack.enter_context(opened(python, given)) for name, given in ways.items()}
        ratios: dict[str, list[Seconds]] = {name: [] for name in engines}
        for turn in range(WARM + ROUNDS):
            asked = [{"tokens": draw(_LENGTH), "max_tokens": _ANSWER} for _ in range(_REQUESTS)]
            took = {}
            order = list(engines) if turn % 2 else list(engines)[::-1]
            for name in order:
                answer = engines[name].generate(asked, None, at_once=_AT_ONCE)
                assert not any(one["cached"] for one in answer["answers"])
                took[name] = answer["wall_s"], answer["processor_s"]
            if turn >= WARM:
                for name, one in took.items():
                    ratios[name].append(share(took["without"], one))
        for name, found in ratios.items():
            if name != "without":
                said(f"throughput with the connector, {name}, of that without", found, "97 %")


def main() -> None:
    try:
        python = python_of("")
    except CallerError as error:
        sys.exit(str(error))
    rng = np.random.Generator(np.random.PCG64(1))

    def draw(count: int) -> list[int]:
        tokens: list[int] = rng.integers(0, VOCABULARY, count).tolist()
        return tokens

    first_tokens(python, draw)
    throughput(python, draw)


if __name__ == "__main__":
    main()
