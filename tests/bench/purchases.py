"""Drawn workloads and prices, each answered by the search of `hicache size` and by replaying every
candidate."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from traces.cli import parse
from traces.commands import size as command
from traces.replaying.options import ReplayOptions
from traces.sizing.candidates import Prices, Purchase
from traces.sizing.search import Decision, Trials, decision
from traces.sweeping.points import How

HARDWARE = ("a100", "h100", "h200", "l40s")
GB = 10**9
HOW = How("local", 1, None, "size")


def workload(path: Path, draw: random.Random) -> None:
    """Conversations that grow, with a system prompt, in blocks of 512 tokens."""
    sessions, fresh = draw.randrange(8, 60), 1000
    histories = [list(range(draw.randrange(1, 12))) for _ in range(sessions)]
    at = 0.0
    gap = draw.uniform(20, 300)  # ms
    with path.open("w") as stream:
        for _ in range(160):
            at += draw.expovariate(1 / gap)
            history = draw.choice(histories)
            new = draw.randrange(1, 12)
            history += range(fresh, fresh + new)
            fresh += new
            item = {
                "timestamp": int(at),
                "input_length": 512 * len(history),
                "output_length": draw.randrange(20, 400),
                "hash_ids": history,
            }
            stream.write(json.dumps(item) + "\n")
            if len(history) > 60:
                del history[12:]


def asked_of(path: str, limits: str) -> tuple[ReplayOptions, command.Options]:
    """The options of a replay of the trace, and all of the command."""
    _, value = parse(["size", path, "--model", "llama-3.1-8b", "--slo", limits])
    assert isinstance(value, command.Options)
    return value.replay, value


def drawn(seed: int, folder: Path) -> tuple[ReplayOptions, Purchase]:
    draw = random.Random(seed)
    path = folder / f"{seed}.jsonl"
    workload(path, draw)
    limits = f"ttft={draw.choice((300, 800, 2000))}ms,tpot={draw.choice((25, 50))}ms"
    per_hour = {name: draw.uniform(0.5, 5) for name in HARDWARE}
    per_hour["host"] = draw.choice((0.0005, 0.004, 0.02))
    wanted = Purchase(
        HARDWARE, (1, 2), (1, 2, 3, 4), (0, 4 * GB, 16 * GB, 64 * GB), price=Prices(per_hour)
    )
    return asked_of(str(path), limits)[0], wanted


def tried(seed: int, folder: Path, **fewer: Any) -> tuple[Decision, list[bool]]:
    """The decision, and whether each candidate serves when it is replayed, the cheapest first.
    fewer: what is asked for instead."""
    options, wanted = drawn(seed, folder)
    result = decision(options, replace(wanted, **fewer), HOW, "hicache size")
    trials = Trials(result.offer, result.options, wanted.attain, HOW, "")
    every = range(len(result.offer.candidates))
    trials.run(every)
    return result, [trials.served(item) for item in every]
