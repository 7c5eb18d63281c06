"""Logs of a vLLM server with --enable-log-requests and, for the answers, --enable-log-outputs.

Read are the token ids of prompts and answers, of lines such as these among others:

    INFO 04-02 12:30:23 logger.py:39] Received request cmpl-7: prompt: '..', params: .., \
prompt_token_ids: [1, 2], lora_request: None
    DEBUG 06-14 17:27:48 [logger.py:71] Request chatcmpl-8 details: prompt: '..', \
prompt_token_ids: [1, 2], prompt_embeds shape: None.
    INFO 06-14 17:27:50 [logger.py:92] Generated response chatcmpl-8: output: '..', \
output_token_ids: [3], finish_reason: stop

From vllm/entrypoints/logger.py: the first line up to 0.11.0, the second after it and only with
VLLM_LOGGING_LEVEL=DEBUG; the third may come in pieces ("(streaming delta)"). Times have no year and
no part of a second; they count from the first request. Prompts are identified in whole blocks.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from . import base
from ._clock import moment_ns
from ._rows import About, Head, Row
from .base import Lines, Names, blocks_of

SUMMARY = "logs of a vLLM server: --enable-log-requests, with token ids"
BLOCK_SIZE = 16

_IDS = ", ".join(map(str, range(520)))
SAMPLE = f"""\
(APIServer pid=1) INFO 06-14 17:27:40 [api_server.py:9] a line about something else
(APIServer pid=1) DEBUG 06-14 17:27:48 [logger.py:71] Request chatcmpl-a details: prompt: 'x', \
prompt_token_ids: [{_IDS}], prompt_embeds shape: None.
(APIServer pid=1) INFO 06-14 17:27:50 [logger.py:92] Generated response chatcmpl-a: output: 'y', \
output_token_ids: [1, 2, 3], finish_reason: stop
(APIServer pid=1) DEBUG 06-14 17:27:55 [logger.py:71] Request chatcmpl-b details: prompt: 'x', \
prompt_token_ids: [{_IDS}, 7], prompt_embeds shape: None.
"""

_DATE = re.compile(r"\b(?:INFO|DEBUG) (\d\d-\d\d \d\d:\d\d:\d\d) ")
_ASKED = re.compile(r"\b(?:Received request (\S{1,256}): prompt: |Request (\S{1,256}) details: )")
_ANSWERED = re.compile(r"\bGenerated response (\S{1,256}?)(?: \([a-z ]{1,20}\))?(?: details)?: ")
_YEAR_NS = 366 * 86400 * base.NS_PER_S
NO_ANSWER = (
    "requests have an output of one token: the log has no token ids of their answers "
    "(--enable-log-outputs)."
)
_NO_IDS = "log them with VLLM_LOGGING_LEVEL=DEBUG, or read another log with --columns"


def recognises(head: Head) -> bool:
    return not head.line.startswith("{") and (
        "Received request " in head.text or _ASKED.search(head.text) is not None
    )


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    about.partial = False
    about.sorts = True
    about.block_size = about.wanted_block_size or BLOCK_SIZE
    for lines in about.each(files):
        yield from _rows(lines, about)


class _Asked(NamedTuple):
    name: str
    line: int
    time_ns: int
    length: int
    blocks: array[int]


def _rows(lines: Lines, about: About) -> Iterator[Row]:
    asked: list[_Asked] = []
    answered: dict[str, int] = {}
    names = Names()
    last_ns = 0
    for text in lines.texts():
        if found := _ASKED.search(text):
            name = found[1] or found[2]
            names.check(lines, name, "request id")
            ids = _ids(lines, text, "prompt_token_ids")
            if not ids:
                lines.wrong("prompt_token_ids", "none", _NO_IDS)
            last_ns = _time_ns(lines, text, last_ns)
            blocks = blocks_of(ids, about.block_size)
            asked.append(_Asked(name, lines.number, last_ns, len(ids), blocks))
        elif found := _ANSWERED.search(text):
            count = len(_ids(lines, text, "output_token_ids"))
            answered[found[1]] = answered.get(found[1], 0) + count
    if not asked:
        lines.wrong("requests with prompt_token_ids", "none", _NO_IDS)
    for one in asked:
        lines.number = one.line
        output = answered.get(one.name, 0)
        if not output:
            about.notes[NO_ANSWER] += 1
        time_ns = one.time_ns
        yield Row(time_ns, one.length, max(1, output), one.blocks, start_ns=time_ns)


def _time_ns(lines: Lines, text: str, last_ns: int) -> int:
    """The time of a line, in a year that has all days. After a new year it is in the next one."""
    found = _DATE.search(text)
    try:
        time_ns = moment_ns(f"2000-{found[1]}" if found else "")
    except ValueError:
        lines.wrong("a time such as INFO 06-14 17:27:48", base.shorten(text), "correct the line")
    if time_ns + _YEAR_NS // 2 < last_ns:
        time_ns += _YEAR_NS
    return time_ns


def _ids(lines: Lines, text: str, field: str) -> array[int]:
    """A list of token ids. The last one of the line counts: text of a user may be before it."""
    start = text.rfind(f"{field}: [")
    if start < 0:
        return array("q")
    start += len(field) + 2
    try:
        ids = json.loads(text[start : text.index("]", start) + 1])
        tokens = array("q", ids)
    except (ValueError, TypeError, OverflowError):
        found = base.shorten(text[start : start + 60])
        lines.wrong(f"{field}: a list of integers", found, "correct the line")
    if len(tokens) > base.MAX_REQUEST_TOKENS:
        lines.wrong(f"at most {base.MAX_REQUEST_TOKENS} {field}", "more", "shorten the request")
    return tokens
