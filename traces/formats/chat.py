"""Conversations as text, which a tokenizer turns into ids: ShareGPT and OpenAI chat messages.

A list of objects, or one on each line. Of an object: conversations (from, value) as in ShareGPT, or
messages (role, content), also within `body`, as in OpenAI's batches. Each message of the assistant
is a request: what is before it is the prompt, itself the output. A request follows the one before
it in its conversation; conversations begin at 0, or at their `timestamp` (ms).

Tokens are those of the texts, one after another: without the few that the template of a chat adds
for each message. They are identified in whole blocks, outputs included.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

from hicache.core.errors import CallerError

from . import base
from ._documents import elements
from ._rows import About, Head, Row
from .base import Lines, Record, blocks_of

SUMMARY = "conversations as text, ShareGPT or OpenAI messages; needs --tokenizer tokenizer.json"
BLOCK_SIZE = 16

SAMPLE = """\
[{"id": "a", "conversations": [{"from": "human", "value": "one two"}, \
{"from": "gpt", "value": "three four"}, {"from": "human", "value": "five"}, \
{"from": "gpt", "value": "six"}]}]
"""

_LISTS = {"conversations": ("from", "value"), "messages": ("role", "content")}
_ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard", "model"})
_UNANSWERED = "answers without text, or with nothing before them, were left out."


def recognises(head: Head) -> bool:
    return bool(head.keys & {*_LISTS}) or {"body", "custom_id"} <= head.keys


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    encode = _tokenizer(about)
    about.knows_output, about.partial = True, False
    about.block_size = about.wanted_block_size or BLOCK_SIZE
    count = 0
    for lines in about.each(files):
        for record in elements(lines):
            element = lines.element
            for row in _conversation(lines, about, record, encode, count):
                count += 1
                yield row
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


def _conversation(
    lines: Lines, about: About, record: Record, encode: Callable[[str], Sequence[int]], count: int
) -> Iterator[Row]:
    """The requests of a conversation. count: of the requests before."""
    begin_ns = base.nanoseconds(lines, record, "timestamp") if "timestamp" in record else 0
    element = lines.element
    tokens = array("q")
    after = -1
    for place, (role, text) in enumerate(_messages(lines, record)):
        ids = encode(text)
        if role in _ANSWERS:
            if ids and tokens:
                yield _request(lines, about, tokens, ids, after, begin_ns)
                after, begin_ns = count, 0
                count += 1
            else:
                about.notes[_UNANSWERED] += 1
        tokens.extend(ids)
        lines.element = f"{element}[{place}]"
        if len(tokens) > base.MAX_REQUEST_TOKENS:
            lines.wrong(
                f"at most {base.MAX_REQUEST_TOKENS} tokens",
                f"{len(tokens)}",
                "shorten the conversation",
            )


def _request(
    lines: Lines, about: About, tokens: array[int], ids: Sequence[int], after: int, delay_ns: int
) -> Row:
    blocks = blocks_of(tokens + array("q", ids), about.block_size)
    return Row(delay_ns, len(tokens), len(ids), blocks, after=after)


def _messages(lines: Lines, record: Record) -> Iterator[tuple[str, str]]:
    """(role, text) of each message."""
    element = lines.element
    if type(record.get("body")) is dict:
        record, element = record["body"], f"{element}.body"
    name = next((name for name in _LISTS if name in record), "conversations")
    messages = record.get(name)
    lines.element = f"{element}.{name}"
    if type(messages) is not list:
        lines.wrong_field(record, name, "a list of messages")
    role_field, text_field = _LISTS[name]
    for place, message in enumerate(messages):
        lines.element = f"{element}.{name}[{place}]"
        if type(message) is not dict:
            lines.wrong("a message", base.show(message), "correct the list")
        role = base.text(lines, message, role_field)
        yield role, _text(lines, message, text_field)


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
