"""Ranks and stages in replays: digests, pools and predicted times; and ranks that agree over gloo,
in processes of their own."""

import json
from pathlib import Path

import pytest

from tests.traces.rig import python

from .playing import conversations, document, same

RANKS = {
    "tp": "--model llama-3.1-70b --tp 4",
    "more ranks than heads": "--model gpt-oss-120b --tp 16",
    "pp": "--model llama-3.1-70b --pp 4",
    "tp and pp": "--model qwen3-32b --tp 2 --pp 2",
    "ep": "--model qwen3-235b-a22b --tp 8 --ep 8",
    "attention dp": "--model deepseek-v3 --tp 16 --ep 16 --attention-dp 16",
    "dcp": "--model deepseek-v3 --tp 16 --dcp 8",
    "all": "--model deepseek-v3.2 --tp 8 --pp 2 --ep 4 --attention-dp 2",
    "states": "--model qwen3-next-80b-a3b --tp 4 --pp 2",
}


@pytest.mark.parametrize("name", RANKS)
def test_a_replay_of_ranks(name: str, tmp_path: Path) -> None:
    """Pools as large as the memory allows, then small ones, so that copies are timed."""
    trace = conversations(tmp_path / "trace.jsonl", 20, 5, 300, 3)
    words = ["replay", trace, *RANKS[name].split(), "--hardware", "h200", "--check", "off"]
    full = document(tmp_path, *words, "--limit", "1")
    small = document(tmp_path, *words, "--device-tokens", "24K", "--host-ratio", "2")
    pools = [
        [item["capacity"], item["pool_bytes_per_rank"]] for item in full["components"].values()
    ]
    times = [small["latency_s"][key] for key in ("ttft", "tpot", "load", "makespan")]
    bytes_ = {way: item["bytes_total"] for way, item in small["transfers"].items()}
    digests = [full["digest"], small["digest"]]
    result = [digests, full["config"]["weight_bytes_per_rank"], pools, bytes_, times]
    same("ranks", name, result)


def test_ranks_agree_over_gloo(tmp_path: Path) -> None:
    """Two processes: minimum, conjunction, broadcast and settings are the same on both, and a reply
    comes when both have it."""
    pytest.importorskip("torch.distributed", exc_type=ImportError)
    done = python("-m", "tests.runtime.gloo_rank", f"file://{tmp_path / 'meet'}", check=True)
    *message, codes = map(json.loads, done.stdout.splitlines())
    assert codes == [0, 0]
    keys = ("minimum", "minimum of many", "conjunction", "broadcast", "settings", "replies")
    both = [{key: item[key] for key in keys} for item in message]
    assert both[0] == both[1]
    same("ranks", "gloo", both[0])
    assert all(item["purpose"].startswith("COLL-SEQ: ") for item in message)
