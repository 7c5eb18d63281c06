"""Published tables, and predicted times: the constants, and what passes take with them."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from .playing import conversations, document, run, same

ROOT = Path(__file__).parents[2]
FITTED = "sim/fitted/fitted.json"
ERRORS = "traces/error_bars/known.json"
TURNS = (
    "generate bench-multiturn --num-clients 10 --num-rounds 12 --request-tokens 256 "
    "--output-tokens 256 --enable-round-barrier"
)
PREFIXES = "generate shared-prefix --groups 12 --prompts 6 --rounds 2"
STATES = "--components full,mamba=50 --device-tokens 1M --check off"
OLD_TIMES = "--times pure-roofline --engine plain"  # nothing fitted moves them


@pytest.mark.parametrize("eviction", ["lru", "lru_path"])
@pytest.mark.parametrize("ratio", ["0", "2"])
def test_twelve_rounds_of_states(eviction: str, ratio: str, tmp_path: Path) -> None:
    trace = str(tmp_path / "turns.jsonl")
    run(*TURNS.split(), "-o", trace)
    words = f"{STATES} {OLD_TIMES} --host-ratio {ratio} --eviction {eviction}"
    result = document(tmp_path, "replay", trace, *words.split())
    rates = [round(turn["hit_rate"], 6) for turn in result["turns"]]
    full = round(result["total"]["hit_rate"], 6)
    if (ratio, eviction) == ("2", "lru"):
        assert rates == [0.0, *(round((8 * r - 1) / (8 * r + 4), 6) for r in range(1, 12))]
        assert full == 0.897569  # as published
    same("tables", f"states {eviction} {ratio}", [result["digest"], full, rates])


def test_shared_prefixes(tmp_path: Path) -> None:
    trace = str(tmp_path / "prefixes.jsonl")
    run(*PREFIXES.split(), "-o", trace)
    words = f"--device-tokens 32K --host-ratio 2 --check off {OLD_TIMES}"
    result = document(tmp_path, "replay", trace, *words.split())
    times = result["latency_s"]
    figures = [result["digest"], result["total"], times["makespan"], times["ttft"]]
    same("tables", "shared prefixes", figures)


PAIRS = [
    *((item, "llama-3.1-8b", "vllm") for item in ("a100", "h100", "h200", "b200", "l40s", "h20")),
    *((item, "qwen3-32b", "sglang") for item in ("h100", "gh200", "h800", "rtx-pro-6000")),
    *((item, "gpt-oss-120b", "trtllm") for item in ("h200", "gb200", "b200")),
    *((item, "qwen3-next-80b-a3b", "vllm") for item in ("gb300", "b200")),
    *((item, "gemma-3-27b", "sglang") for item in ("a100", "h200")),
    *((item, "qwen3-8b", "plain") for item in ("rtx-4090", "a100-40gb", "h20-3e")),
    ("h100-pcie", "mistral-7b", "trtllm"),
]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_predicted_times(pair: tuple[str, str, str], tmp_path: Path) -> None:
    """To the nanosecond, with the error that is to be expected."""
    hardware, model, engine = pair
    trace = conversations(tmp_path / "trace.jsonl", 10, 4, 900, 2)
    words = ("--hardware", hardware, "--model", model, "--engine", engine, "--check", "off")
    result = document(tmp_path, "replay", trace, *words)
    times = result["latency_s"]
    figures = {name: times[name] for name in ("ttft", "tpot", "itl", "makespan")}
    digest = sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()[:16]
    mean = [times["ttft"]["mean"], times["tpot"]["mean"], times["makespan"]]
    errors = [result["expected_error"][name] for name in ("ttft", "tpot", "throughput")]
    medians = [error and error["median"] for error in errors]
    same("tables", " ".join(pair), [digest, *mean, *medians, result["config"]["engine"]])


@pytest.mark.parametrize("file", [FITTED, ERRORS])
def test_constants_and_errors_are_the_fitted_ones(file: str) -> None:
    same("tables", file, sha256((ROOT / file).read_bytes()).hexdigest())
