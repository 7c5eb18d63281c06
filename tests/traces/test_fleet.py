"""`hicache replay` with several replicas, and with --engine and --pp."""

from collections import Counter
from pathlib import Path

import pytest

from sim import engine_profiles
from traces.sweeping.table import model_of

from .rig import Capsys, mooncake, records, replayed, write

DIVIDED = ["--replicas", "2:2"]
SMALL = ["--device-pages", "60", "--host-pages", "60"]


@pytest.mark.parametrize(("mode", "router"), [("timed", "prefix-aware"), ("hits", "least-loaded")])
def test_the_parts_are_the_whole(turns: str, tmp_path: Path, mode: str, router: str) -> None:
    pools = ["--components", "full,swa,mamba=60"]
    fleet = ["--replicas", "3", "--router", router, "--check", "every"]
    result, rows = records(tmp_path, turns, *SMALL, *pools, *fleet, "--mode", mode)
    replicas, full = result["fleet"]["replicas"], result["total"]
    assert sum(replica["requests"] for replica in replicas) == full["requests"] == len(rows)
    assert sum(replica["input_tokens"] for replica in replicas) == full["input_tokens"]
    assert sum(replica["hit_tokens"] for replica in replicas) == sum(full["hit_tokens"].values())
    assert (
        sum(replica["checked_operations"] for replica in replicas)
        == result["checks"]["operations"]
        > 0
    )
    for tier in ("device", "host"):
        evicted = sum(replica["evicted_pages"][tier] for replica in replicas)
        assert evicted == result["evicted_pages"][tier]
    assert Counter(row["replica"] for row in rows) == {
        replica["replica"]: replica["requests"] for replica in replicas
    }
    counts = [replica["requests"] for replica in replicas]
    assert result["fleet"]["imbalance"]["requests"] == max(counts) * 3 / sum(counts)
    assert result["components"]["full"]["capacity"] == {"device": 180, "host": 180}


def test_decode_replicas_take_every_request(turns: str, tmp_path: Path, capsys: Capsys) -> None:
    result, rows = records(tmp_path, turns, *SMALL, *DIVIDED, "--check", "every")
    assert model_of(result["config"]) == "llama-3.1-8b on 4 replicas of 1 x h100"
    replicas, link = result["fleet"]["replicas"], result["fleet"]["kv_link"]
    assert [replica["role"] for replica in replicas] == ["prefill"] * 2 + ["decode"] * 2
    assert (
        sum(replica["requests"] for replica in replicas[2:]) == len(rows) == link["requests"] == 30
    )
    assert sum(replica["output_tokens"] for replica in replicas) == result["output"]["tokens"]
    assert sum(row["link_bytes"] for row in rows) == link["bytes_total"]
    assert link["bytes_total"] == (
        link["moved_pages"] * result["components"]["full"]["page_bytes_total"]
    )
    assert link["busy_s"] >= link["bytes_total"] / 50e9
    for row in rows:
        assert row["queue_ns"] + row["load_ns"] + row["compute_ns"] == row["ttft_ns"]
        moved_ns = row["decode_wait_ns"] + row["link_wait_ns"] + row["link_ns"]
        assert row["arrival_ns"] + row["ttft_ns"] + moved_ns < row["finish_ns"]
        assert row["decode_replica"] in (2, 3)
        # what the answers of earlier turns are is known to decode replicas only
        assert row["hit_ended_by"] in ("complete", "first_seen", "not_here", "evicted")


def test_one_storage_serves_all_replicas(turns: str, tmp_path: Path) -> None:
    """What one replica stored, another one fetches."""
    store = ["--storage", "sim:", "--prefetch", "wait_complete:0", "--check", "every"]
    result, rows = records(tmp_path, turns, *SMALL, "--replicas", "4", *store)
    assert result["total"]["hit_tokens"]["storage"] > 0
    ended = result["storage"]["prefetches"]["ended"].values()
    assert sum(item["fetched_tokens"] for item in ended) > 0
    alone = replayed(tmp_path, turns, *SMALL, "--replicas", "4")
    assert result["total"]["hit_rate"] > alone["total"]["hit_rate"]
    assert result["total"]["hit_tokens"]["storage"] == sum(
        row["hit_tokens"]["storage"] for row in rows
    )


def test_limits_are_the_engines_unless_they_are_given(tmp_path: Path) -> None:
    result = replayed(tmp_path, "--limit", "5", "--engine", "vllm@0.7.3")
    config = result["config"]
    assert (config["engine"], config["max_running"]) == ("vllm@0.7.3", 256)
    assert (config["ep"], config["attention_dp"]) == (1, 1)
    value = ("--engine", "vllm?token_budget=4096&max_running=7")
    config = replayed(tmp_path, "--limit", "5", *value)["config"]
    assert config["engine"] == engine_profiles.get(engine_profiles.DEFAULT).label
    assert (config["token_budget"], config["max_running"]) == (4096, 7)


def test_an_engine_keeps_states_in_its_own_places(tmp_path: Path) -> None:
    """64 prompts with one long head in common: SGLang keeps a state where they part, vLLM none. A
    state of qwen3-next has 32 value heads of 128 x 128 in fp32 and 3 x 8,192 convolved in bf16, for
    a layer, a token 2,048 bytes of attention: 1,048 and so 1,056 tokens of whole 16, 1,088 of whole
    pages."""
    trace = write(
        tmp_path / "t.jsonl", *(mooncake([0, *range(n, n + 3)], 1700) for n in range(9, 201, 3))
    )
    words = [str(trace), "--model", "qwen3-next", "--hardware", "gb300", "--mode", "hits"]
    words += ["--check", "every"]
    hits = {}
    for engine in ("sglang", "vllm"):
        result = replayed(tmp_path, *words, "--engine", engine)
        hits[engine] = result["total"]["hit_tokens"]["device"], result["config"]["mamba_interval"]
    assert hits == {"sglang": (62 * 512, 256), "vllm": (0, 1088)}


def test_a_replay_on_stages_tells_their_bubbles(tmp_path: Path, capsys: Capsys) -> None:
    result = replayed(tmp_path, "--limit", "8", "--pp", "2")
    config, stages, error = (result[name] for name in ("config", "stages", "expected_error"))
    assert config["pp"] == 2
    computing = [each / stages["under_way_s"] for each in stages["computing_s"]]
    assert stages["idle_rate"] == pytest.approx([1 - each for each in computing])
    assert 0 < sum(computing) <= 2
    assert error["missing"] == "pipeline stages"
    moved = result["transfers"]["d2h"]
    assert moved["bytes_per_rank"] == moved["bytes_total"] // 2 > 0
    out = capsys.readouterr().out
    assert "stages idle" in out
    assert "2 x h100" in out
