"""`hicache chat` talks with a model from a local folder, and a second start is warm from disk."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import tokenizers
import torch
import transformers

from tests.patience import PATIENCE_S
from tests.traces.test_json_docs import compare
from traces.chatting import talking
from traces.cli import main

from .rig import Capsys, Patch

LETTERS = [*"abcdefghijklmnopqrstuvwxyz", " "]
QUESTION = "what is the answer to the question of all questions"


def model_folder(folder: Path, template: str = "") -> str:
    """Writes a model of random weights and a tokenizer of letters."""
    words = ["<s>", "</s>", "<unk>", *LETTERS]
    level = tokenizers.models.WordLevel(
        {one: at for at, one in enumerate(words)}, unk_token="<unk>"
    )
    made = tokenizers.Tokenizer(level)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.chat_template = template or None
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=1,
    )
    transformers.utils.logging.disable_progress_bar()
    model = transformers.LlamaForCausalLM(config)
    model.lm_head.weight.data[:3] = 0  # no special token is ever the likeliest
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> str:
    torch.set_num_threads(1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return model_folder(tmp_path / "model")


def chat(*words: str) -> list[str]:
    return ["chat", *words, "--max-new-tokens", "6"]


@pytest.mark.one_in(16)
def test_the_second_start_is_warm_from_disk(folder: str, tmp_path: Path, capsys: Capsys) -> None:
    assert main(chat(folder, "--once", QUESTION)) == 0
    first = capsys.readouterr()
    assert "[0 of 51 prompt tokens skipped; first token after " in first.err
    command = [sys.executable, "-m", "traces", *chat(folder, "--once", QUESTION)]
    again = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ, check=True
    )
    assert again.stdout == first.out
    assert "[48 of 51 prompt tokens skipped (48 from disk); first token after " in again.stderr
    assert (tmp_path / "cache/hicache/chat/manifest.json").exists()


TEMPLATE = "{% for one in messages %}{{ one.content }} {% endfor %}"


@pytest.mark.parametrize(("template", "last"), [("", 64), (TEMPLATE, 80)])
def test_a_conversation_skips_what_was_said(
    tmp_path: Path, monkeypatch: Patch, template: str, last: int
) -> None:
    torch.set_num_threads(1)
    folder = model_folder(tmp_path / "model", template)
    out = tmp_path / "answers.json"
    for asked, skipped in (("again and again\n\nand once more", [0, 48, last]), ("", [0])):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{QUESTION}\n{asked}"))
        arguments = ["--storage", "none", "--dtype", "fp32", "--attention", "eager"]
        assert main(chat(folder, *arguments, "--json", str(out))) == 0
        document = json.loads(out.read_text())
        answers = document["answers"]
        assert [sum(one["reused"].values()) for one in answers] == skipped
        assert all(one["new_tokens"] == 6 for one in answers)
        compare("hicache chat", [document])


@pytest.mark.usefixtures("signals")
def test_ctrl_c_ends_an_answer_and_not_the_conversation(
    folder: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    put = talking._Printer.put
    calls: list[int] = []

    def interrupted(self: Any, value: torch.Tensor) -> None:
        put(self, value)
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(talking._Printer, "put", interrupted)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{QUESTION}\n{QUESTION}\n"))
    assert main(chat(folder)) == 0
    lines = capsys.readouterr().err.splitlines()
    assert " 3 tokens in " in lines[0]
    assert "[48 of 105 prompt tokens skipped" in lines[1]
    assert " 6 tokens in " in lines[1]


@pytest.mark.usefixtures("signals")
def test_ctrl_c_at_a_question_ends_it(folder: str, monkeypatch: Patch) -> None:
    def typed(_: str) -> str:
        signal.raise_signal(signal.SIGINT)
        return ""

    monkeypatch.setattr("builtins.input", typed)
    assert main(chat(folder)) == 130


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_a_folder_does_not_choose_kernels_that_are_downloaded(folder: str, key: str) -> None:
    path = Path(folder) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: "some/kernel"}))
    model, _ = talking.load(folder, "auto", "auto")
    assert model.config._attn_implementation == "sdpa"
    model, _ = talking.load(folder, "bf16", "eager")
    assert model.config._attn_implementation == "eager"
    assert model.dtype == torch.bfloat16


def test_folders_without_a_model(folder: str, tmp_path: Path, capsys: Capsys) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for words in (["nowhere"], [str(other)]):
        assert main(chat(*words, "--once", "a")) == 2
    (other / "config.json").write_text("{}")
    assert main(chat(str(other), "--once", "a")) == 2
    (other / "model.safetensors").write_text("")
    assert main(chat(str(other), "--once", "a")) == 2
    (other / "config.json").write_text('{"auto_map": {"AutoConfig": "own.Config"}}')
    (other / "own.py").write_text("raise SystemExit('code of the folder ran')")
    assert main(chat(str(other), "--once", "a")) == 2
    assert main(chat(folder, "--once", "a", "--storage", "nothing")) == 2
    assert main(chat(folder, "--once", "a", "--device-tokens", "3")) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 7
    assert all("expected" in line and "found" in line for line in lines)
    assert lines[-1].startswith("hicache: --device-tokens: ")
