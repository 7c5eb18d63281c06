"""Pools as data: bytes of tokens, pages and states of each described model, and a replay on each
kind of pool."""

import json
from pathlib import Path
from typing import Any

import pytest

from .playing import conversations, document, run, same

# K and V x heads x elements x bytes, over all layers; a latent of 1,152 bytes, and an index key of
# 128 bytes with a scale of 4; a draft has layers of its own.
PUBLISHED = {
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-2-7b": 512 * 1024,
    "deepseek-v3": 61 * 1152,
    "gpt-oss-120b": 36 * 2 * 8 * 64 * 2,
    "gemma-3-27b": 62 * 2 * 16 * 128 * 2,
    "qwen3-next-80b-a3b": 12 * 2 * 2 * 256 * 2,
    "deepseek-v3.2": 61 * (1152 + 132),
    "llama-3.1-8b-eagle3": 33 * 4096,
    "deepseek-v3-mtp": 62 * 1152,
}
# Rows of DeepSeek V4 as served, and one state of Qwen3-Next over its 36 layers.
ROWS = {"c4": 584, "c4_indexer": 132, "c128": 584, "swa": 584, "c4_state": 8192}
STATE = 36 * (32 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 32 * 128) * 2)


def models(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    run("models", "--json", *words)
    return {load["model"]["name"]: load for load in json.loads(capsys.readouterr().out)["models"]}


def pools(stage: dict[str, Any]) -> dict[str, list[int]]:
    """Of each pool: layers, bytes of a row, copies, rows of a page, bytes of a page, pages that a
    hit reads."""
    return {
        name: [
            *(len(item["layers"]), item["row_bytes"], item["copies"]),
            *(item["rows_per_page"], item["page_bytes"], item["trailing_pages"]),
        ]
        for name, item in stage["pools"].items()
    }


@pytest.mark.parametrize("ranks", ["", "--tp 2 --pp 2 --page-size 128"])
def test_every_model(ranks: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, model in models(capsys, *ranks.split()).items():
        sizes = [model["model"][key] for key in ("parameters", "active_parameters", "weight_bytes")]
        stages = [[stage["bytes_per_page"], pools(stage)] for stage in model["stages"]]
        result = [model["page_size"], model["bytes_per_token"], *sizes, *stages]
        same("models", f"{name} {ranks}".strip(), result)


def test_published_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    result = models(capsys)
    assert {name: result[name]["bytes_per_token"] for name in PUBLISHED} == PUBLISHED
    (stage,) = result["deepseek-v4-pro"]["stages"]
    assert {name: stage["pools"][name]["row_bytes"] for name in ROWS} == ROWS
    assert result["qwen3-next-80b-a3b"]["stages"][0]["bytes_per_page"]["mamba"] == STATE


KINDS = {
    "full": "llama-3.1-8b",
    "window": "gpt-oss-120b",
    "state": "qwen3-next-80b-a3b --tp 2",
    "latent": "deepseek-v3 --tp 16",
    "index beside the latent": "deepseek-v3.2 --tp 16",
    "compressed": "deepseek-v4-flash --tp 8 --page-size 256",
    "draft": "llama-3.1-8b-eagle3",
    "draft of a latent": "deepseek-v3-mtp --tp 16",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_on_each_kind_of_pool(kind: str, tmp_path: Path) -> None:
    """Pools from the memory of the accelerator, evictions and loads of each component."""
    trace = conversations(tmp_path / "trace.jsonl", 24, 5, 300, 3)
    words = ["--model", *KINDS[kind].split(), "--hardware", "h200", "--check", "every"]
    sizes = ["--device-tokens", "24K", "--host-ratio", "2"]
    filled = document(tmp_path, "replay", trace, *words[:-1], "off", "--limit", "1")
    result = document(tmp_path, "replay", trace, *words, *sizes)
    assert result["checks"]["violations"] == 0
    same(
        "models",
        f"replay {kind}",
        [_sizes(filled), result["digest"], result["total"], _moved(result)],
    )


def _sizes(result: dict[str, Any]) -> Any:
    return {name: item["capacity"] for name, item in result["components"].items()}


def _moved(result: dict[str, Any]) -> Any:
    keys = ("page_bytes", "backed_up", "loaded", "evicted")
    return {name: [item[key] for key in keys] for name, item in result["components"].items()}
