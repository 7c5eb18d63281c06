"""Conversations and requests as text, which a tokenizer turns into ids: ShareGPT, OpenAI messages.

A list of objects, or one on each line. Of an object: a list of messages, `conversations` (from,
value) or `conversation` or `messages` (role, content), also within `body` or `request`; and a time.

- Where the last message is not of the assistant, the object is one request: all messages are its
  prompt. Its answer is the text of `response` or `choices`, if there is one.
- Else each message of the assistant is a request: what is before it is the prompt, itself the
  output. A request follows the one before it in its conversation. What an object with a time
  repeats of one before it is no request again.

Tokens are those of the texts, one after another: without the few that the template of a chat adds
for each message. They are identified in whole blocks, outputs included.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct, field

from hicache.core.errors import CallerError
from hicache.files import text_of

from . import base
from ._clock import Clock
from ._tables import documents
from .base import About, Format, Head, Lines, Row, blocks_of

_BLOCK_SIZE = 16
_LISTS = ("conversations", "conversation", "messages")
_ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard", "model"})
_UNANSWERED = "answers without text, or with nothing before them, were left out."
_AGAIN = "answers that an earlier object has after the same messages were not counted again."
_NO_ANSWER = "requests have an output of one token: the file has no answers of theirs."
_EMPTY = "requests without text were left out."
_RELATIVE = 10**8  # a smaller number is not a time since 1970, but milliseconds
_MOST_BYTES = 256 << 20  # of a tokenizer


class _Message(Struct):
    """content: also OpenAI's parts; none where an assistant only calls tools."""

    role: str | None = None
    sender: str | None = field(name="from", default=None)
    content: str | list[Any] | None = None
    value: str | None = None

    @property
    def is_answer(self) -> bool:
        return (self.sender or self.role) in _ANSWERS

    @property
    def text(self) -> str:
        content = self.value if self.value is not None else self.content
        if isinstance(content, list):
            parts = [part.get("text") for part in content if isinstance(part, dict)]
            return "".join(part for part in parts if isinstance(part, str))
        return content or ""


class _Object(Struct):
    conversations: list[_Message] | None = None
    conversation: list[_Message] | None = None
    messages: list[_Message] | None = None
    body: _Object | str | None = None
    request: _Object | str | None = None
    response: Any = None
    choices: Any = None
    timestamp: Any = None
    time: Any = None
    created_at: Any = None
    created: Any = None

    @property
    def when(self) -> Any:
        times = (self.timestamp, self.time, self.created_at, self.created)
        return next((time for time in times if time is not None), None)

    @property
    def said(self) -> list[_Message] | None:
        """The messages, here or in what is within."""
        inner = next((one for one in (self.body, self.request) if isinstance(one, _Object)), self)
        return inner.conversations or inner.conversation or inner.messages


def _recognises(head: Head) -> bool:
    keys = head.keys
    if keys & {*_LISTS} or {"body", "custom_id"} <= keys:
        return True
    return "request" in keys and '"messages"' in head.text and '"role"' in head.text


def _rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    encode = tokenizer(about.tokenizer)
    about.knows_output, about.partial, about.sorts = True, False, True
    about.block_size = about.wanted_block_size or _BLOCK_SIZE
    clock: Clock | None = None
    known: set[bytes] = set()  # digests of conversations up to an answer
    count = 0
    decoder = msgspec.json.Decoder(_Object)
    for lines in about.each(files):
        for raw in documents(lines):
            record = lines.decoded(decoder, raw)
            messages, when = record.said, record.when
            if messages is None:
                lines.wrong(f"a list of messages ({', '.join(_LISTS)})", "none", base.NO_TRACE)
            time_ns = None
            if when is not None:
                is_small = isinstance(when, int | float) and when < _RELATIVE
                clock = clock or Clock("timestamp", "ms" if is_small else "")
                time_ns = clock.ns(lines, str(when))
            ids = [encode(message.text) for message in messages]
            if sum(map(len, ids)) > base.MAX_REQUEST_TOKENS:
                lines.wrong(f"at most {base.MAX_REQUEST_TOKENS} tokens", "more", "shorten the text")
            after = -1
            if messages and not messages[-1].is_answer:
                turns = [(array("q", chain.from_iterable(ids)), encode(_answer(record)))]
                about.notes[_NO_ANSWER] += bool(turns[0][0]) and not turns[0][1]
            else:
                turns = _turns(messages, ids, about, None if time_ns is None else known)
            for tokens, answer in turns:
                if not tokens:
                    about.notes[_EMPTY] += 1
                    continue
                blocks = blocks_of(tokens + array("q", answer), about.block_size)
                arrival_ns, length = 0 if after >= 0 else time_ns or 0, max(1, len(answer))
                row = Row(arrival_ns, len(tokens), length, blocks, after=after)
                yield row._replace(start_ns=time_ns or 0)
                after, count = count, count + 1


def _turns(
    messages: Sequence[_Message],
    ids: Sequence[Sequence[int]],
    about: About,
    known: set[bytes] | None,
) -> list[tuple[array[int], Sequence[int]]]:
    """The prompt and the answer of each message of the assistant. known: digests of what earlier
    objects have up to an answer; None for objects without times."""
    found = []
    tokens = array("q")
    for place, (message, answer) in enumerate(zip(messages, ids, strict=True)):
        prompt, tokens = tokens, tokens + array("q", answer)
        if message.is_answer and not (answer and prompt):
            about.notes[_UNANSWERED] += 1
        elif message.is_answer:
            digest = hashlib.blake2b(tokens.tobytes(), digest_size=8).digest()
            if known is not None and digest in known and place < len(messages) - 1:
                about.notes[_AGAIN] += 1
                continue
            if known is not None:
                known.add(digest)
            found.append((prompt, answer))
    return found


def _answer(record: _Object) -> str:
    """The text with which a request was answered; empty if the object has none."""
    response, choices = record.response, record.choices
    if isinstance(response, dict) and isinstance(response.get("body"), dict):
        response = response["body"]
    if isinstance(response, str):
        return response
    if isinstance(response, dict):
        choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        content = message.get("content") if isinstance(message, dict) else choices[0].get("text")
        return content if isinstance(content, str) else ""
    return ""


def tokenizer(path: str | None) -> Callable[[str], Sequence[int]]:
    """The function from text to ids, without special tokens, of a tokenizer.json."""
    if path is None:
        raise CallerError(
            "--tokenizer: expected a tokenizer for a trace of text, found none; give the "
            "tokenizer.json of the model"
        )
    try:
        library = import_module("tokenizers")
    except ImportError:
        raise CallerError(
            "--tokenizer: expected the library tokenizers, found none; pip install 'hicache[text]'"
        ) from None

    def unusable(expected: str, error: Exception) -> CallerError:
        found = str(error).partition("\n")[0][:120]
        return CallerError(
            f"--tokenizer {path}: expected {expected}, found: {found}; name another tokenizer"
        )

    try:
        loaded = library.Tokenizer.from_str(
            text_of(path, "tokenizer", _MOST_BYTES, "name a tokenizer.json")
        )
    except CallerError:
        raise
    except Exception as error:  # the library raises Exception itself
        raise unusable("a tokenizer.json", error) from None

    def encode(text: str) -> Sequence[int]:
        try:
            ids: Sequence[int] = loaded.encode(text, add_special_tokens=False).ids
        except Exception as error:
            raise unusable("a text that it can encode", error) from None
        return ids

    return encode


CHAT = Format(
    "conversations or requests as text, ShareGPT or OpenAI messages; needs --tokenizer",
    _recognises,
    _rows,
)
