"""A local model, questions and answers in a terminal, and what each answer reused.

Ctrl-C ends an answer, and at a question the conversation; Ctrl-D ends it, too. Nothing is
downloaded, and no code of the model's folder runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, TextStreamer
from transformers.utils import logging

from hicache.core.errors import CallerError
from hicache.transformers import PrefixCache
from hicache.transformers.describing import DTYPES

from ..terminal.signals import Stopped, stoppable
from ..terminal.text import printable

_WEIGHTS = "*.safetensors"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer took. reused: prompt tokens by tier. first_token_s: 0 if none came."""

    prompt_tokens: int
    reused: dict[str, int]
    new_tokens: int
    first_token_s: float
    seconds: float
    stopped: bool

    def __str__(self) -> str:
        parts = [f"{count:,} from {tier}" for tier, count in self.reused.items() if count]
        skipped = sum(self.reused.values())
        where = f" ({', '.join(parts)})" if parts else ""
        first = (
            f"first token after {self.first_token_s:.3f} s" if self.first_token_s else "no token"
        )
        return (
            f"[{skipped:,} of {self.prompt_tokens:,} prompt tokens skipped{where}; {first}; "
            f"{self.new_tokens:,} tokens in {self.seconds:.3f} s]"
        )


class _Printer(TextStreamer):  # type: ignore[misc]
    """Prints an answer as it comes, and keeps it."""

    def __init__(self, tokenizer: Any, out: TextIO) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.began_s = time.perf_counter()
        self.first_s = 0.0
        self.tokens: list[int] = []
        self.text = ""
        self._prompt, self._out = True, out

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt:
            self.first_s = self.first_s or time.perf_counter() - self.began_s
            self.tokens += value.flatten().tolist()
        self._prompt = False
        super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self.text += text
        print(printable(text), end="\n" if stream_end else "", file=self._out, flush=True)


class Conversation:
    """The questions and answers so far."""

    def __init__(
        self, cache: PrefixCache, tokenizer: Any, max_new_tokens: int, out: TextIO
    ) -> None:
        """out: where answers are printed."""
        self.answers: list[Answer] = []
        self._cache, self._tokenizer = cache, tokenizer
        self._most, self._out = max_new_tokens, out
        self._messages: list[dict[str, str]] = []
        self._ids: list[int] = []

    def ask(self, question: str) -> Answer:
        """Print an answer. Ctrl-C ends it."""
        self._messages.append({"role": "user", "content": question})
        prompt = self._prompt(question)
        before = self._cache.stats.hits
        printer = _Printer(self._tokenizer, self._out)
        ids = torch.tensor([prompt], device=self._cache.model.device)
        stopped = False
        try:
            self._cache.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=self._most,
                streamer=printer,
                **self._padding(),
            )
        except Stopped:
            stopped = True
            printer.end()
        self._messages.append({"role": "assistant", "content": printer.text})
        self._ids = [*prompt, *printer.tokens]
        after = self._cache.stats.hits
        found = Answer(
            len(prompt),
            {tier: after[tier] - before[tier] for tier in after},
            len(printer.tokens),
            printer.first_s,
            time.perf_counter() - printer.began_s,
            stopped,
        )
        self.answers.append(found)
        return found

    def _prompt(self, question: str) -> list[int]:
        """The tokens of the whole conversation: by the template of the tokenizer, or else what was
        said, one after the other."""
        if self._tokenizer.chat_template:
            made: list[int] = self._tokenizer.apply_chat_template(
                self._messages, add_generation_prompt=True, return_dict=True
            )["input_ids"]
            return made
        said = self._tokenizer(question, add_special_tokens=not self._ids)["input_ids"]
        return [*self._ids, *said]

    def _padding(self) -> dict[str, int]:
        """The library asks for a pad token, although nothing is padded."""
        config = self._cache.model.generation_config
        eos = self._tokenizer.eos_token_id
        known = config.pad_token_id is not None or eos is None
        return {} if known else {"pad_token_id": eos}

    def documents(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.answers]


def talk(conversation: Conversation, questions: Sequence[str]) -> None:
    """Ask these questions, or those of standard input if there are none."""
    with stoppable():
        for question in questions or _typed():
            if question.strip():
                answer = conversation.ask(question)
                print(answer, file=sys.stderr, flush=True)


def _typed() -> Iterator[str]:
    """What a person types, line by line, until Ctrl-D."""
    asking = sys.stdin.isatty()
    while True:
        try:
            yield input("> " if asking else "")
        except EOFError:
            if asking:
                print()
            return


def load(folder: str, dtype: str, attention: str) -> tuple[Any, Any]:
    """The model, ready to generate, and its tokenizer. dtype, attention: auto is as the folder
    says. Raises CallerError for a folder without a model that the library knows."""
    path = Path(folder)
    for name in ("config.json", _WEIGHTS):
        if not any(path.glob(name)):
            found = "no such folder" if not path.is_dir() else f"no {name} in it"
            raise CallerError(
                f"model {folder}: expected a folder with config.json, a tokenizer and {_WEIGHTS}, "
                f"as save_pretrained writes it, found {found}"
            )
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **local)
        config = AutoConfig.from_pretrained(path, **local)
        # a folder might name kernels, which the library would download and run
        config._attn_implementation = None if attention == "auto" else attention
        config._experts_implementation = None
        chosen = {"config": config, "dtype": DTYPES.get(dtype, "auto")}
        model = AutoModelForCausalLM.from_pretrained(path, use_safetensors=True, **local, **chosen)
    except Exception as error:  # of many kinds, whatever is wrong in the folder
        text = " ".join(str(error).split())
        raise CallerError(
            f"model {folder}: expected a model that transformers can load without code of its "
            f"own, found {type(error).__name__}: {text}"
        ) from error
    if torch.cuda.is_available():
        model = model.to("cuda")
    return model.eval(), tokenizer
