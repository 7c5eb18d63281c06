"""--engine, --pp, --ep and --attention-dp on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim import engine_profiles

from .rig import Capsys, mooncake, replayed, write


def test_limits_are_the_engines_unless_they_are_given(tmp_path: Path) -> None:
    found = replayed(tmp_path, "--limit", "5", "--engine", "vllm@0.7.3")
    config = found["config"]
    assert (config["engine"], config["max_running"]) == ("vllm@0.7.3", 256)
    assert (config["ep"], config["attention_dp"]) == (1, 1)
    given = ("--engine", "vllm?token_budget=4096&max_running=7")
    config = replayed(tmp_path, "--limit", "5", *given)["config"]
    assert config["engine"] == engine_profiles.get(engine_profiles.DEFAULT).label
    assert (config["token_budget"], config["max_running"]) == (4096, 7)


def test_an_engine_keeps_states_in_its_own_places(tmp_path: Path, capsys: Capsys) -> None:
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
    said = " ".join(capsys.readouterr().out.split())
    assert "every 256 tokens, at ends of passes, and where a prompt leaves what is known" in said
    assert "every 1,088 tokens, at ends of passes alone" in said
    assert "no reference for hits of mamba: they follow from what this cache stores" in said


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
