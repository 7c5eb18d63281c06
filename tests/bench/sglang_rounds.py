"""SGLang's real cache on the 12 rounds of 50 states (docs/benchmarks.md), beside this core.

A replay gives the order in which requests are admitted and end, and what this core hits. The same
order is played on SGLang's cache with the calls of its scheduler (docs/peers_sglang.md). A page has
4 tokens instead of 64, since the rows of the peer are short. Run it, with the release fetched
(`hicache peers fetch sglang-legacy==0.5.12`):

    python -m tests.bench.sglang_rounds sglang-legacy==0.5.12 --seeds 20
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from invariants.fuzz.tapes.tape import Entry
from invariants.peers.tape import PeerTape, dumps
from traces.peers._folders import environment_of
from traces.peers._session import Session

from .followed import SCALE, Row, generated, replayed

PUBLISHED = (0.583333, 0.60, 0.58, 0.60, 0.44, 0.72, 0.55, 0.65, 0.47, 0.56, 0.45)
WORKLOAD = "--num-clients 10 --num-rounds 12 --request-tokens 256 --output-tokens 256"
REPLAY = "--components full,mamba --mamba-states 50 --device-tokens 1M --host-ratio 0 --check off"
TIMES = "--times pure-roofline --engine plain"
NEW = 320  # tokens of a prompt that cannot hit: the question, and the last page of the answer
BARRIER = 10  # the client that sends the script's request at each barrier
SECOND = 10**9
CONFIG: dict[str, Any] = {
    "cache": "mamba",
    "core": "python",
    "components": "full+mamba",
    "page": 64 // SCALE,
    "pages": 2000,
    "mamba": 50,
    "extra": True,
    "order": "lru",
    "policy": "write_through",
    "states": -1,
    "load_from": 1,
    "storage": "none",
    "at_once": False,
    **dict.fromkeys(("events", "bigram", "prefix_keys"), False),
    **dict.fromkeys(("host", "host_swa", "host_mamba", "swa_pages", "window"), 0),
}


def of_clients(seed: int, sender: str, eviction: str) -> list[Row]:
    """The requests of a replay, with the client of each."""
    with tempfile.TemporaryDirectory() as folder:
        words = f"bench-multiturn {WORKLOAD} --enable-round-barrier {sender} --seed {seed}"
        trace = generated(words, Path(folder, "trace.jsonl"))
        rows = replayed(trace, f"{REPLAY} {TIMES} --eviction {eviction}")
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
    for row in rows:
        label = lines[row["line"] - 1]["input"][0][0]  # such as q7.0
        row["client"] = int(label[1:].partition(".")[0])
    return rows


def at_barriers(rows: Sequence[Row]) -> list[Row]:
    """The request of 100 tokens that newer versions of the script send after each round."""
    ends: dict[int, int] = {}
    for row in rows:
        ends[row["input_tokens"]] = max(ends.get(row["input_tokens"], 0), row["finish_ns"])
    shape = {"client": BARRIER, "input_tokens": 96, "output_tokens": 112, "queue_ns": 0}
    return [
        shape
        | {"request": len(rows) + at, "arrival_ns": end + SECOND, "finish_ns": end + 2 * SECOND}
        for at, end in enumerate(ends.values())
    ]


def entries(rows: Sequence[Row]) -> tuple[list[Entry], list[int]]:
    """What is played, and the requests in the order of their admission."""
    moments = [(row["finish_ns"], 0, row["request"], row) for row in rows]
    moments += [(row["arrival_ns"] + row["queue_ns"], 1, row["request"], row) for row in rows]
    found, order = list[Entry](), list[int]()
    for _, begins, request, row in sorted(moments, key=lambda moment: moment[:3]):
        word, name = row["client"] + 1, {"request": request}
        if begins:
            tokens = [[word, row["input_tokens"] // SCALE]]
            found.append(Entry("arrive", name | {"tokens": tokens, "space": ""}))
            found.append(Entry("admit", name | {"chunk": 1 << 19}))
            order.append(request)
        else:
            more = row["output_tokens"] // SCALE - 1  # the last token is never computed
            found.append(Entry("grow", name | {"more": more, "word": word}))
            found.append(Entry("finish", name | {"keep": True}))
    return found, order


def played(session: Session, rows: Sequence[Row], states: int) -> dict[int, int]:
    """What each request hits in SGLang's cache, in tokens of the workload."""
    found, order = entries(rows)
    answers = answered(session, CONFIG | {"mamba": states}, found)
    admitted = [one["device"] * SCALE for one in answers if one["op"] == "admit"]
    return dict(zip(order, admitted, strict=True))


def answered(
    session: Session, config: dict[str, Any], found: Sequence[Entry], judges: bool = True
) -> list[dict[str, Any]]:
    """What a peer answers to each of these operations. judges: whether laws are judged, too."""
    tape = PeerTape("rounds", "0", config, tuple(found))
    adopted = session.ask({"do": "adopt", "tape": dumps(tape)}, 60)["tape"]
    said = session.ask({"do": "play", "tape": adopted, "judges": judges}, 3600)
    assert said["failure"] is None, said["failure"]
    answers: list[dict[str, Any]] = said["answers"]
    return answers


def rates(rows: Sequence[Row], hits: dict[int, int]) -> tuple[list[float], float, int]:
    """The rate of each round, that of all, and how many requests hit a part of their history."""
    asked: dict[int, int] = {}
    found: dict[int, int] = {}
    parts = 0
    for row in rows:
        length, hit = row["input_tokens"], hits[row["request"]]
        asked[length] = asked.get(length, 0) + length
        found[length] = found.get(length, 0) + hit
        parts += hit not in (0, length - NEW)
    total = sum(found.values()) / sum(asked.values())
    return [found[length] / asked[length] for length in sorted(asked)], total, parts


def shown(name: str, runs: Sequence[tuple[list[float], float, int]]) -> str:
    means = [statistics.mean(column) for column in zip(*(run[0] for run in runs), strict=True)]
    totals = [run[1] for run in runs]
    error = math.dist(means[1:], PUBLISHED) / len(PUBLISHED) ** 0.5
    return (
        f"{name}: {' '.join(f'{rate:.2f}' for rate in means[1:])}; in all "
        f"{statistics.mean(totals):.3f} +- {statistics.stdev(totals):.3f} ({min(totals):.3f} to "
        f"{max(totals):.3f}); RMSE {error:.3f}; parts of a history {sum(run[2] for run in runs)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("peer")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--eviction", default="lru_path", help="of this core")
    parser.add_argument("--states", type=int, default=50, help="of SGLang")
    parser.add_argument("--sender", default="", help="options of hicache generate bench-multiturn")
    parser.add_argument("--at-barriers", action="store_true", help="requests at each barrier, too")
    parser.add_argument("--folder", help="of the environments of peers")
    given = parser.parse_args()
    ours, theirs, apart = [], [], 0
    with Session(environment_of(given.peer, None, given.folder), given.folder, False) as session:
        for seed in range(1, given.seeds + 1):
            rows = of_clients(seed, given.sender, given.eviction)
            more = at_barriers(rows) if given.at_barriers else []
            hits = {row["request"]: row["hit_tokens"]["device"] for row in rows}
            ours.append(rates(rows, hits))
            found = played(session, [*rows, *more], given.states)
            theirs.append(rates(rows, found))
            apart += sum(hit != found[request] for request, hit in hits.items())
    print(f"published: {' '.join(f'{rate:.2f}' for rate in PUBLISHED)}; in all 0.547")
    print(shown(f"here, {given.eviction}", ours))
    print(shown(given.peer, theirs))
    print(f"requests that hit another length: {apart} of {given.seeds * len(rows)}")


if __name__ == "__main__":
    main()
