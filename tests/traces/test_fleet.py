"""`hicache replay` with several replicas, and with --engine and --pp."""

from collections import Counter
from pathlib import Path

import pytest

from sim import engine_profiles
from traces.sweeping.table import model_of

from .rig import Capsys, mooncake, records, replayed, write

DIVIDED = ["--replicas", "2:2"]
SMALL = ["--device-pages", "60", "--host-pages", "60"]


@pytest.mark.parametrize(
    ("mode", "components", "router"),
    [
        ("timed", "full", "round-robin"),
        ("timed", "full,swa,mamba", "prefix-aware"),
        ("hits", "full,swa,mamba", "least-loaded"),
    ],
)
def test_the_parts_are_the_whole(
    turns: str, tmp_path: Path, mode: str, components: str, router: str
) -> None:
    pools = (
        [] if components == "full" else ["--components", components.replace("mamba", "mamba=60")]
    )
    fleet = ["--replicas", "3", "--router", router, "--check", "every"]
    found, rows = records(tmp_path, turns, *SMALL, *pools, *fleet, "--mode", mode)
    replicas, whole = found["fleet"]["replicas"], found["whole"]
    assert sum(one["requests"] for one in replicas) == whole["requests"] == len(rows)
    assert sum(one["input_tokens"] for one in replicas) == whole["input_tokens"]
    assert sum(one["hit_tokens"] for one in replicas) == sum(whole["hit_tokens"].values())
    assert sum(one["checked_operations"] for one in replicas) == found["checks"]["operations"] > 0
    for tier in ("device", "host"):
        evicted = sum(one["evicted_pages"][tier] for one in replicas)
        assert evicted == found["evicted_pages"][tier]
    assert Counter(row["replica"] for row in rows) == {
        one["replica"]: one["requests"] for one in replicas
    }
    counts = [one["requests"] for one in replicas]
    assert found["fleet"]["imbalance"]["requests"] == max(counts) * 3 / sum(counts)
    assert found["components"]["full"]["capacity"] == {"device": 180, "host": 180}


def test_decode_replicas_take_every_request(turns: str, tmp_path: Path, capsys: Capsys) -> None:
    found, rows = records(tmp_path, turns, *SMALL, *DIVIDED, "--check", "every")
    assert model_of(found["config"]) == "llama-3.1-8b on 4 replicas of 1 x h100"
    replicas, link = found["fleet"]["replicas"], found["fleet"]["kv_link"]
    assert [one["role"] for one in replicas] == ["prefill"] * 2 + ["decode"] * 2
    assert sum(one["requests"] for one in replicas[2:]) == len(rows) == link["requests"] == 30
    assert sum(one["output_tokens"] for one in replicas) == found["output"]["tokens"]
    assert sum(row["link_bytes"] for row in rows) == link["bytes_total"]
    assert link["bytes_total"] == (
        link["moved_pages"] * found["components"]["full"]["page_bytes_total"]
    )
    assert link["busy_s"] >= link["bytes_total"] / 50e9
    for row in rows:
        assert row["queue_ns"] + row["load_ns"] + row["compute_ns"] == row["ttft_ns"]
        moved_ns = row["decode_wait_ns"] + row["link_wait_ns"] + row["link_ns"]
        assert row["arrival_ns"] + row["ttft_ns"] + moved_ns < row["finish_ns"]
        assert row["decode_replica"] in (2, 3)
        # what the answers of earlier turns are is known to decode replicas only
        assert row["hit_ended_by"] in ("complete", "first_seen", "not_here", "evicted")


@pytest.mark.parametrize("mode", ["timed", "hits"])
def test_one_storage_serves_all_replicas(turns: str, tmp_path: Path, mode: str) -> None:
    """What one replica stored, another one fetches."""
    store = ["--storage", "sim:", "--prefetch", "wait_complete:0", "--check", "every"]
    store += ["--mode", mode]
    found, rows = records(tmp_path, turns, *SMALL, "--replicas", "4", *store)
    assert found["whole"]["hit_tokens"]["storage"] > 0
    ended = found["storage"]["prefetches"]["ended"].values()
    assert sum(one["fetched_tokens"] for one in ended) > 0
    alone, _ = records(tmp_path, turns, *SMALL, "--replicas", "4", "--mode", mode)
    assert found["whole"]["hit_rate"] > alone["whole"]["hit_rate"]
    assert found["whole"]["hit_tokens"]["storage"] == sum(
        row["hit_tokens"]["storage"] for row in rows
    )


def test_limits_are_the_engines_unless_they_are_given(tmp_path: Path) -> None:
    found = replayed(tmp_path, "--limit", "5", "--engine", "vllm@0.7.3")
    config = found["config"]
    assert (config["engine"], config["max_running"]) == ("vllm@0.7.3", 256)
    assert (config["ep"], config["attention_dp"]) == (1, 1)
    given = ("--engine", "vllm?token_budget=4096&max_running=7")
    config = replayed(tmp_path, "--limit", "5", *given)["config"]
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
        found = replayed(tmp_path, *words, "--engine", engine)
        hits[engine] = found["whole"]["hit_tokens"]["device"], found["config"]["mamba_interval"]
    assert hits == {"sglang": (62 * 512, 256), "vllm": (0, 1088)}


def test_a_replay_on_stages_tells_their_bubbles(tmp_path: Path, capsys: Capsys) -> None:
    found = replayed(tmp_path, "--limit", "8", "--pp", "2")
    config, stages, error = (found[name] for name in ("config", "stages", "expected_error"))
    assert config["pp"] == 2
    computing = [each / stages["under_way_s"] for each in stages["computing_s"]]
    assert stages["idle_rate"] == pytest.approx([1 - each for each in computing])
    assert 0 < sum(computing) <= 2
    assert error["missing"] == "pipeline stages"
    moved = found["transfers"]["d2h"]
    assert moved["bytes_per_rank"] == moved["bytes_total"] // 2 > 0
    said = capsys.readouterr().out
    assert "stages idle" in said
    assert "2 x h100" in said
