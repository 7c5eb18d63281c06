"""vLLM itself with the connector: every answer is that of an engine which keeps nothing.

    make engines; pytest -m engine           HICACHE_ENGINE_REQUESTS=2000, HICACHE_ENGINE_SEED=1

Drawn: prompts that begin alike, salts, adapters, preemption, loads that fail, adapters and weights
that are replaced in place, and a new process on the same store for every piece.
"""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

from ..needs import vllm_python

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
PIECE = 50  # requests of a process
PIECES = -(-int(os.environ.get("HICACHE_ENGINE_REQUESTS", "200")) // PIECE)
SEED = int(os.environ.get("HICACHE_ENGINE_SEED", "0"))
NEAR = 1e-3  # of log probabilities: sums of other batches round elsewhere
FORMS = ("single", "multi", "two")
# Without an adapter is nobody beside others that have one: there vLLM's kernels for CPUs take the
# last adapter (their index -1), with and without a connector.
ADAPTERS = ("a", "b", "c")
Step = dict[str, Any]


class Child:
    """A process of `child.py`."""

    def __init__(
        self,
        folder: Path,
        weights: str,
        connectors: Any = None,
        faults: float = 0.0,
        cached: bool = True,
    ):
        place = ROOT / ".engines/vllm/bin/python"
        python = str(place) if place.exists() else vllm_python()
        variables = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
        variables |= {
            "PYTHONPATH": str(ROOT),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_NO_USAGE_STATS": "1",
        }
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables,
            text=True,
        )
        setting = {"folder": str(folder), "weights": weights, "connectors": connectors}
        self._say(setting | {"faults": faults, "cached": cached})

    def do(self, steps: list[Step]) -> list[Any]:
        """What the steps answer."""
        self._say(steps)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"vLLM has ended, code {self._process.wait()}"
        items: list[Any] = json.loads(line)
        return items

    def close(self) -> None:
        self._process.communicate()

    def _say(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()


class World:
    """What outlives a process: files of adapters, the store, and the engine that keeps nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.draw = folder, random.Random(SEED)
        self.past: list[Step] = []
        self.adapters: dict[str, tuple[int, int]] = {}  # seed and alpha of what the files hold
        self.seeds = count(1)
        self.seen: Counter[str] = Counter()
        self.played = 0  # pieces
        (folder / "cold").mkdir()
        self.cold = Child(folder / "cold", "m", cached=False)
        self._cold_holds: dict[str, Any] = {"": "m"}
        self._cold_names: dict[str, str] = {}

    def steps(self) -> list[Step]:
        """What one process does. Once weights were replaced nothing is kept, so most do that
        late."""
        draw, left = self.draw, PIECE
        calm = PIECE // 2 if draw.random() < 0.8 else PIECE  # requests that are left then
        steps = [] if self.adapters else [self._adapter(name) for name in ADAPTERS]
        while left > 0:
            steps += self._change(left <= calm)
            named = draw.choice([("",), ADAPTERS])
            requests = [self._request(named) for _ in range(draw.randint(1, 10))]
            steps.append({"do": "ask", "requests": requests})
            left -= len(requests)
        return steps

    def _change(self, updates: bool) -> list[Step]:
        last = "weights" if updates else "none"
        what = self.draw.choice(["none", "reset", "reset", "reset", "adapter", last])
        if what == "adapter":
            return [self._adapter(self.draw.choice([*self.adapters]))]
        if what == "weights":
            name, full = self.draw.choice("mn"), self.draw.random() < 0.5
            return [{"do": "weights", "name": name, "connector": full}]
        return [{"do": "reset"}] if what == "reset" else []

    def _adapter(self, name: str) -> Step:
        """Half of the changes are of alpha alone."""
        seed, alpha = self.adapters.get(name, (next(self.seeds), 16))
        if name in self.adapters:
            old = self.draw.random() < 0.5
            seed, alpha = (seed, 80 - alpha) if old else (next(self.seeds), alpha)
        self.adapters[name] = (seed, alpha)
        return {"do": "adapter", "name": name, "seed": seed, "alpha": alpha}

    def _request(self, adapters: Sequence[str]) -> Step:
        draw = self.draw
        alike = [row for row in self.past[-16:] if row["adapter"] in adapters]
        begun = draw.choice(alike) if alike else {"tokens": []}
        size = len(begun["tokens"])
        cut = draw.choice([0, size, size, draw.randint(0, size)])
        more = draw.randint(1, max(1, min(200, 440 - cut)))
        new = {
            "tokens": begun["tokens"][:cut] + [draw.randrange(3, 1000) for _ in range(more)],
            "salt": draw.choice(["", "", "", "", "salt"]),
            "adapter": draw.choice(adapters),
            "most": draw.choice([1, 4, 80]),
        }
        if alike and draw.random() < 0.7:
            new |= {"salt": begun["salt"], "adapter": begun["adapter"]}
        self.past.append(new)
        return new

    def expected(self, weights: str, steps: list[Step]) -> list[Any]:
        """The answers to the same steps of the engine that keeps nothing. There each content of an
        adapter has a name of its own."""
        known, names = self._cold_holds, self._cold_names
        requested: list[Step] = []
        for row in [{"do": "weights", "name": weights, "connector": False}, *steps]:
            if row["do"] == "adapter":
                names[row["name"]] = f"{row['seed']}-{row['alpha']}"
                if names[row["name"]] not in known:
                    known[names[row["name"]]] = True
                    requested.append(row | {"name": names[row["name"]]})
            elif row["do"] == "weights":
                if known[""] != row["name"]:
                    known[""] = row["name"]
                    requested.append(row)
            elif row["do"] == "ask":
                more = [
                    each | {"adapter": names.get(each["adapter"], "")} for each in row["requests"]
                ]
                requested.append(row | {"requests": more})
        return [item for item in self.cold.do(requested) if item is not None]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("engine"))
    yield world
    world.cold.close()


def near(step: Step, right: Step) -> bool:
    """Whether an answer is the right one, up to a token that was as good as another."""
    for token, other, mine, its in zip(
        step["tokens"], right["tokens"], step["logprobs"], right["logprobs"], strict=True
    ):
        if abs(mine[0] - its[0]) > NEAR:
            return False
        if token != other:
            return bool(its[0] - its[1] < NEAR)
    return True


def play(world: World, piece: int) -> None:
    world.played += 1
    store = {"host": "3MB", "storage": f"file:{world.folder / 'kv'}"}
    form = FORMS[piece % len(FORMS)]
    connectors = {"single": store, "multi": [store], "two": [{"host": "1MB"}, store]}[form]
    weights = world.draw.choice("mmmn")
    steps = world.steps()
    child = Child(world.folder, weights, connectors, faults=0.3)
    try:
        *items, counts = child.do([*steps, {"do": "counts"}])
    finally:
        child.close()
    right = iter(world.expected(weights, steps))
    wrong, before = [], []
    for step, answers in zip(steps, items, strict=True):
        if step["do"] != "ask":
            before.append(" ".join(str(item) for item in step.values()))
            continue
        for requested, mine, its in zip(step["requests"], answers, next(right), strict=True):
            if not near(mine, its):
                what = f"{len(requested['tokens'])} tokens, adapter {requested['adapter']!r}"
                wrong.append(f"{what}, after {'; '.join(before) or 'the start'}")
    world.seen += Counter({name: number for name, number in counts["counted"].items() if number})
    world.seen["preemptions"] += int(counts["preemptions"])
    assert not wrong, f"{form}: {len(wrong)} wrong of {PIECE}\n" + "\n".join(wrong[:8])
    counted = counts["counted"]
    assert counted["host_tokens"] + counted["storage_tokens"] == counts["landed"]
    assert counts["vllm_hits"] == counts["hits"]
    assert counts["told"] == pytest.approx(counted)


@pytest.mark.parametrize("piece", range(PIECES))
def test_answers_are_those_of_an_engine_that_keeps_nothing(world: World, piece: int) -> None:
    play(world, piece)


def test_all_of_it_was_reached(world: World) -> None:
    for piece in range(world.played, PIECES):  # those that were not asked for
        play(world, piece)
    for name in ("host_tokens", "storage_tokens", "saved_pages", "failed_loads", "preemptions"):
        assert world.seen[name] > 0, f"{name}: {dict(world.seen)}"


def test_one_at_a_time_vllm_hits_what_a_replay_counts(tmp_path: Path) -> None:
    """Prompts of blocks of 32 tokens, of which equal ones have equal tokens. None ends with a
    block: vLLM would compute its last block again, and keep both."""
    draw, size, requests = random.Random(SEED), 32, []
    for number in range(120):
        begun = draw.choice(requests)[0] if requests and draw.random() < 0.8 else []
        kept = begun[: draw.randint(0, len(begun))]
        blocks = [*kept, *(1000 * number + at for at in range(draw.randint(1, 13 - len(kept))))]
        requests.append((blocks[:13], draw.randint(1, size - 1), draw.choice([1, 4, 40])))
    lines = [
        {
            "timestamp": 1000 * number,
            "input_length": size * (len(blocks) - 1) + rest,
            "output_length": most,
            "hash_ids": blocks,
        }
        for number, (blocks, rest, most) in enumerate(requests)
    ]
    trace, rows = tmp_path / "trace.jsonl", tmp_path / "rows.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pools = f"--page-size {size} --block-size {size} --device-pages 35 --host-pages 0"
    options = f"--engine vllm --concurrency 1 {pools} --requests {rows}"
    assert main(["replay", str(trace), *options.split()]) == 0
    counted = [json.loads(line)["hit_tokens"] for line in rows.read_text().splitlines()]
    steps: list[Step] = []
    for line in lines:
        draws = [random.Random(item) for item in line["hash_ids"]]
        tokens = [draw.randrange(3, 1000) for draw in draws for _ in range(size)]
        requested = {"tokens": tokens[: line["input_length"]], "salt": "", "adapter": ""}
        steps.append({"do": "ask", "requests": [requested | {"most": line["output_length"]}]})
    child = Child(tmp_path, "m")
    try:
        hits = [answer["hits"] for [answer] in child.do(steps)]
    finally:
        child.close()
    assert hits == [sum(item.values()) for item in counted]
    assert sum(hits) > 10 * size
