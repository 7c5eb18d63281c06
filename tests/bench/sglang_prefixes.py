"""SGLang's real cache on three bursts of shared prefixes (docs/benchmarks.md), beside this core.

A replay is followed operation by operation, and SGLang's cache gets the same ones, with pools of
the same size. Run it with a release that is fetched, and the options of the replay:

    python -m tests.bench.sglang_prefixes sglang==0.5.23 --model llama-3.1-8b --hardware h100

`--times N` then replays the bursts with what SGLang's cache hits, in the order of that replay plays
them on SGLang's cache again, and so on, N times: the times are then those of SGLang's hits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hicache import models
from invariants.fuzz.tapes.tape import Entry
from invariants.peers.tape import PeerTape, dumps
from traces.peers._folders import environment_of
from traces.peers._session import Session

from .followed import SCALE, Follower, Row, capped, followed, generated, replayed

WORKLOAD = (
    "serving-shared-prefix --gsp-num-groups 128 --gsp-prompts-per-group 16 "
    "--gsp-system-prompt-tokens 4096 --gsp-output-tokens 128"
)
TIMES = "--times pure-roofline --engine plain"
RUNS = 3
ROWS = 512  # more requests than a replay has in progress
INTERVAL = 256  # tokens between the states that decoding leaves, SGLang's default
PARTS = {"full": ("pages", "host"), "mamba": ("mamba", "host_mamba")}
Config = dict[str, Any]
CONFIG: Config = {
    "core": "python",
    "extra": True,
    "order": "lru",
    "policy": "write_through",
    "states": -1,
    "load_from": 1,
    "storage": "none",
    **dict.fromkeys(("events", "bigram", "prefix_keys"), False),
    **dict.fromkeys(("pages", "mamba", "host", "host_swa", "host_mamba", "swa_pages", "window"), 0),
}
Hits = dict[int, tuple[int, int]]  # by request: tokens on device, and on host


def config_of(follower: Follower) -> Config:
    """The configuration of a peer whose pools are as large."""
    core = follower.config
    found = CONFIG | {
        "components": "+".join(core.components),
        "page": core.page_size // SCALE,
        "rows": ROWS,
        "interval": INTERVAL // SCALE,
    }
    for place, part in enumerate(core.components):
        device, host = PARTS[part]
        found |= {device: core.device_pages[place], host: core.host_pages[place]}
    return found


def answered(session: Session, config: Config, found: Sequence[Entry]) -> list[dict[str, Any]]:
    """What a peer answers to each of these operations. No law is judged."""
    tape = PeerTape("prefixes", "0", config, tuple(found))
    adopted = session.ask({"do": "adopt", "tape": dumps(tape)}, 60)["tape"]
    said = session.ask({"do": "play", "tape": adopted, "judges": False}, 3600)
    assert said["failure"] is None, said["failure"]
    answers: list[dict[str, Any]] = said["answers"]
    return answers


def hits_of(follower: Follower, answers: Sequence[Mapping[str, Any]]) -> Hits:
    """What each request hits when the peer first admits it; nothing where it never does."""
    found: Hits = {}
    for entry, answer in zip(follower.entries, answers, strict=True):
        if entry.op == "admit" and "device" in answer:
            hit = answer["device"] * SCALE, answer["host"] * SCALE
            found.setdefault(entry.args["request"], hit)
    return dict.fromkeys(follower.hits, (0, 0)) | found


def full_alone(name: str, folder: Path) -> str:
    """A file with a model that has the weights of this one, and no states: it hits at any page."""
    model = models.get(name)
    pools = tuple(one for one in model.pools if one.component == "full")
    path = folder / "model.json"
    path.write_text(json.dumps(models.as_document(replace(model, pools=pools))))
    return str(path)


def times(rows: Sequence[Row]) -> tuple[float, float, float]:
    """Seconds of a burst: its duration, and the mean and the median time to first token."""
    first = [row["ttft_ns"] / 1e9 for row in rows]
    begin = min(row["arrival_ns"] for row in rows)
    duration = (max(row["finish_ns"] for row in rows) - begin) / 1e9
    return duration, statistics.mean(first), statistics.median(first)


def rate(rows: Sequence[Row], hits: Hits) -> str:
    asked = sum(row["input_tokens"] for row in rows)
    device, host = (sum(hits[row["request"]][tier] for row in rows) / asked for tier in (0, 1))
    return f"{device + host:.3f} ({device:.3f} on device)"


def apart(rows: Sequence[Row], ours: Hits, theirs: Hits) -> str:
    """How many requests of a burst hit the same length, and what most of the others hit."""
    pairs = Counter((sum(ours[row["request"]]), sum(theirs[row["request"]])) for row in rows)
    equal = sum(count for (here, there), count in pairs.items() if here == there)
    others = [f"{count} x {pair}" for pair, count in pairs.most_common() if pair[0] != pair[1]]
    return f"equal {equal} of {len(rows)}; {', '.join(others[:4]) or 'no others'}"


def report(rows: Sequence[Row], ours: Hits, theirs: Hits) -> None:
    each = len(rows) // RUNS
    bursts = [rows[at : at + each] for at in range(0, len(rows), each)]
    measured = [times(one) for one in bursts]
    for burst, (duration, mean, median) in zip(bursts, measured, strict=True):
        print(
            f"{duration:.1f} s, TTFT mean {mean:.2f} s, median {median:.2f} s; hits here "
            f"{rate(burst, ours)}, there {rate(burst, theirs)}; {apart(burst, ours, theirs)}"
        )
    later = [statistics.mean(one) for one in zip(*measured[1:], strict=True)]
    pairs = zip(later, measured[0], strict=True)
    changes = [f"{100 * (after / before - 1):+.1f} %" for after, before in pairs]
    print("rounds 2 and 3: duration {}, TTFT mean {}, median {}".format(*changes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("peer")
    parser.add_argument("--folder", help="of the environments of peers")
    parser.add_argument("--question", type=int, default=512, help="tokens of a question")
    parser.add_argument("--times", type=int, default=0, help="replays with SGLang's hits")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--mamba-states", help="of the device")
    given, more = parser.parse_known_args()
    options = f"{TIMES} --check off {' '.join(more)}"
    states = f"--mamba-states {given.mamba_states}" if given.mamba_states else ""
    environment = environment_of(given.peer, None, given.folder)
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(environment, given.folder, False) as session,
    ):
        words = f"{WORKLOAD} --runs {RUNS} --gsp-question-tokens {given.question}"
        trace = generated(words, Path(folder, "prefixes.jsonl"))
        follower = Follower(trace)
        with followed(follower):
            rows = replayed(trace, f"{options} --model {given.model} {states}")
        config = config_of(follower)
        print({key: config[key] for part in PARTS.values() for key in part})
        for left in range(given.times, -1, -1):
            answers = answered(session, config, follower.entries)
            theirs = hits_of(follower, answers)
            refused = sum("refused" in one for one in answers)
            print(f"{len(answers)} operations, {refused} refused")
            report(rows, follower.hits, theirs)
            if left:
                page = follower.config.page_size
                sizes = f"--device-tokens {config['pages'] * page} --host-pages {config['host']}"
                model = full_alone(given.model, Path(folder))
                follower = Follower(trace)
                with (
                    followed(follower),
                    capped({one: sum(hit) // page for one, hit in theirs.items()}),
                ):
                    rows = replayed(trace, f"{options} --model {model} {sizes}")


if __name__ == "__main__":
    main()
