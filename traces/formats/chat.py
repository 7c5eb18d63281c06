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
from typing import Any

from hicache.core.errors import CallerError

from . import base
from ._clock import Clock
from ._documents import elements
from ._rows import About, Head, Row
from .base import Lines, Record, blocks_of

SUMMARY = "conversations or requests as text, ShareGPT or OpenAI messages; needs --tokenizer"
BLOCK_SIZE = 16

SAMPLE = """\
[{"id": "a", "conversations": [{"from": "human", "value": "one two"}, \
{"from": "gpt", "value": "three four"}, {"from": "human", "value": "five"}, \
{"from": "gpt", "value": "six"}]}]
"""

_LISTS = ("conversations", "conversation", "messages")
_WITHIN = ("body", "request")
_TIMES = ("timestamp", "time", "created_at", "created")
_ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard", "model"})
_UNANSWERED = "answers without text, or with nothing before them, were left out."
_AGAIN = "answers that an earlier object has after the same messages were not counted again."
_NO_ANSWER = "requests have an output of one token: the file has no answers of theirs."
_EMPTY = "requests without text were left out."
_RELATIVE = 10**8  # a smaller number is not a time since 1970, but milliseconds


def recognises(head: Head) -> bool:
    keys = head.keys
    if keys & {*_LISTS} or {"body", "custom_id"} <= keys:
        return True
    return "request" in keys and '"messages"' in head.text and '"role"' in head.text


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    reader = _Reader(about)
    for lines in about.each(files):
        for record in elements(lines):
            element = lines.element
            yield from reader.requests(lines, record)
            lines.element = element


def _tokenizer(about: About) -> Callable[[str], Sequence[int]]:
    if about.tokenizer is None:
        raise CallerError(
            "--tokenizer: expected a tokenizer for a trace of text, found none; give the "
            "tokenizer.json of the model"
        )
    try:
        entry = import_module("traces.formats._huggingface")
    except ImportError:
        raise CallerError(
            "--tokenizer: expected the library tokenizers, found none; pip install 'hicache[text]'"
        ) from None
    load: Callable[[str], Sequence[int]] = entry.load(about.tokenizer)
    return load


class _Reader:
    def __init__(self, about: About) -> None:
        self._about = about
        self._encode = _tokenizer(about)
        about.knows_output, about.partial, about.sorts = True, False, True
        about.block_size = about.wanted_block_size or BLOCK_SIZE
        self._count = 0  # requests before
        self._clock: Clock | None = None
        self._answered: set[bytes] = set()  # digests of conversations up to an answer

    def requests(self, lines: Lines, record: Record) -> Iterator[Row]:
        """The requests of one object."""
        element = lines.element
        begin_ns = self._time(lines, record)
        messages = [(role, self._encode(text)) for role, text in _messages(lines, record)]
        if sum(len(ids) for _, ids in messages) > base.MAX_REQUEST_TOKENS:
            lines.wrong(f"at most {base.MAX_REQUEST_TOKENS} tokens", "more", "shorten the text")
        if messages and messages[-1][0] not in _ANSWERS:
            answer = self._encode(_answer(record))
            tokens = array("q", [id_ for _, ids in messages for id_ in ids])
            self._about.notes[_NO_ANSWER] += bool(tokens) and not answer
            if tokens:
                yield self._row(tokens, answer, begin_ns or 0, -1, begin_ns or 0)
            else:
                self._about.notes[_EMPTY] += 1
            return
        tokens = array("q")
        after = -1
        for place, (role, ids) in enumerate(messages):
            lines.element = f"{element}[{place}]"
            if role in _ANSWERS and not (ids and tokens):
                self._about.notes[_UNANSWERED] += 1
            elif role in _ANSWERS and not self._is_known(
                begin_ns, tokens + array("q", ids), place == len(messages) - 1
            ):
                delay_ns = (begin_ns or 0) if after < 0 else 0
                last, after = after, self._count
                yield self._row(tokens, ids, delay_ns, last, begin_ns or 0)
            tokens.extend(ids)

    def _is_known(self, begin_ns: int | None, tokens: array[int], is_last: bool) -> bool:
        """Whether an object before, where they have times, has the same up to this answer."""
        if begin_ns is None:
            return False
        digest = hashlib.blake2b(tokens.tobytes(), digest_size=8).digest()
        known = digest in self._answered and not is_last
        self._answered.add(digest)
        self._about.notes[_AGAIN] += known
        return known

    def _row(
        self, tokens: array[int], answer: Sequence[int], time_ns: int, after: int, start_ns: int
    ) -> Row:
        self._count += 1
        blocks = blocks_of(tokens + array("q", answer), self._about.block_size)
        length = max(1, len(answer))
        return Row(time_ns, len(tokens), length, blocks, after=after, start_ns=start_ns)

    def _time(self, lines: Lines, record: Record) -> int | None:
        """When the object began; None without a time."""
        name = next((name for name in _TIMES if record.get(name) is not None), None)
        if name is None:
            return None
        value = record[name]
        if self._clock is None:
            small = type(value) in (int, float) and value < _RELATIVE
            self._clock = Clock(name, "ms" if small else "")
        return self._clock.ns(lines, value)


def _answer(record: Record) -> str:
    """The text with which a request was answered; empty if the object has none."""
    for name in ("response", "body"):
        value = record.get(name)
        if type(value) is str:
            return value
        record = value if type(value) is dict else record
    choices = record.get("choices")
    if type(choices) is list and choices and type(choices[0]) is dict:
        message = choices[0].get("message")
        content = message.get("content") if type(message) is dict else choices[0].get("text")
        return content if type(content) is str else ""
    return ""


def _messages(lines: Lines, record: Record) -> Iterator[tuple[str, str]]:
    """(role, text) of each message."""
    element = lines.element
    for within in _WITHIN:
        if type(record.get(within)) is dict:
            record, element = record[within], f"{element}.{within}"
            break
    name = next((name for name in _LISTS if name in record), "conversations")
    messages = record.get(name)
    lines.element = f"{element}.{name}"
    if type(messages) is not list:
        lines.wrong_field(record, name, "a list of messages")
    for place, message in enumerate(messages):
        lines.element = f"{element}.{name}[{place}]"
        if type(message) is not dict:
            lines.wrong("a message", base.show(message), "correct the list")
        role, text = ("from", "value") if "from" in message else ("role", "content")
        yield base.text(lines, message, role), _text(lines, message, text)


def _text(lines: Lines, message: Record, field: str) -> str:
    """The text of a message: of OpenAI's content parts, those of text."""
    content: Any = message.get(field)
    if content is None:
        return ""  # an assistant that only calls tools
    if type(content) is list:
        parts = [part.get("text", "") for part in content if type(part) is dict]
        content = "".join(part for part in parts if type(part) is str)
    if type(content) is not str:
        lines.wrong_field(message, field, "text")
    return str(content)
