"""Responses of the OpenAI API, one JSON object a line, as proxies and clients log them.

Read are `created` (seconds since 1970), `usage.prompt_tokens` and `usage.completion_tokens`, as in
an answer of vLLM 0.10.1 (github.com/vllm-project/vllm, pull request 20707). Nothing says which
prompts begin alike, nor which requests are one conversation.
"""

from __future__ import annotations

from ._rows import Head
from .base import Lines

SUMMARY = "responses of the OpenAI API, one a line: created (s), usage; lengths only"
_COLUMNS = "time=created:s,input=usage.prompt_tokens,output=usage.completion_tokens"

SAMPLE = """\
{"id": "chatcmpl-1", "object": "chat.completion", "created": 1763892000, "model": "m", \
"usage": {"prompt_tokens": 600, "completion_tokens": 40, "total_tokens": 640}}
{"id": "chatcmpl-2", "object": "chat.completion", "created": 1763892005, "model": "m", \
"usage": {"prompt_tokens": 700, "completion_tokens": 30, "total_tokens": 730}}
"""


def recognises(head: Head) -> bool:
    return {"object", "created", "usage"} <= head.keys


def columns(lines: Lines) -> str:
    return _COLUMNS
