"""Logs of known tools: one row each, read as a user's own log with these columns.

Nothing in them says which prompts begin alike; where there are sessions, it is assumed as in any
log. Formats: github.com/Azure/AzurePublicDataset, HPMLL/BurstGPT, Mutinifni/splitwise-sim; answers
of the OpenAI API; results of the serving benchmarks of vLLM (--save-detailed) and SGLang
(--output-details), whose columns are lists; transcripts of a coding agent, whose input_tokens leave
out what was cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ._rows import Head
from .base import Lines


@dataclass(frozen=True)
class Known:
    """names: of the columns in a file's head by which it is recognised. roles: as in --columns.
    optional: by role, the name without which a file has not got it. zipped: columns are lists."""

    SUMMARY: str
    names: frozenset[str]
    roles: Mapping[str, str]
    SAMPLE: str
    optional: Mapping[str, str] = field(default_factory=dict)
    zipped: bool = False
    words: tuple[str, ...] = ()

    def recognises(self, head: Head) -> bool:
        if self.words:
            return head.line.startswith("{") and all(
                f'"{word}"' in head.text for word in self.words
            )
        return self.names <= {*head.columns, *head.keys} and not (self.zipped and head.is_list)

    def columns(self, lines: Lines) -> str:
        head = Head(lines)
        roles = [
            f"{role}={text}"
            for role, text in self.roles.items()
            if self.optional.get(role, "") in ("", *head.columns, *head.keys)
            or f'"{self.optional[role]}"' in head.text
        ]
        return ",".join(roles)


def _named(time: str, prompt: str, output: str, **more: str) -> dict[str, str]:
    return {"time": time, "input": prompt, "output": output, **more}


_USAGE = "message.usage."
KNOWN = {
    "azure": Known(
        "Azure LLM inference CSV: TIMESTAMP, ContextTokens, GeneratedTokens; lengths only",
        frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}),
        _named("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,600,44
2023-11-16 18:15:50.9951690,1000,109
""",
    ),
    "burstgpt": Known(
        "BurstGPT CSV: Timestamp (s), Request tokens, Response tokens, Session ID",
        frozenset({"Timestamp", "Request tokens", "Response tokens"}),
        _named("Timestamp:s", "Request tokens", "Response tokens", session="Session ID"),
        """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,600,18,618,Conversation log
45.5,GPT-4,1000,10,1010,API log
""",
        optional={"session": "Session ID"},
    ),
    "splitwise": Known(
        "SplitwiseSim CSV: arrival_timestamp (s), prompt_size, token_size; lengths only",
        frozenset({"arrival_timestamp", "prompt_size", "token_size"}),
        _named("arrival_timestamp:s", "prompt_size", "token_size"),
        """\
request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size
0,2,0,0.0,1,600,13
1,2,0,1.25,1,1000,7
""",
    ),
    "openai": Known(
        "responses of the OpenAI API, one a line: created (s), usage; lengths only",
        frozenset({"object", "created", "usage"}),
        _named("created:s", "usage.prompt_tokens", "usage.completion_tokens")
        | {"cached": "usage.prompt_tokens_details.cached_tokens"},
        """\
{"id": "chatcmpl-1", "object": "chat.completion", "created": 1763892000, "model": "m", \
"usage": {"prompt_tokens": 600, "completion_tokens": 40, "total_tokens": 640}}
{"id": "chatcmpl-2", "object": "chat.completion", "created": 1763892005, "model": "m", \
"usage": {"prompt_tokens": 700, "completion_tokens": 30, "total_tokens": 730}}
""",
        optional={"cached": "cached_tokens"},
    ),
    "serving-benchmark": Known(
        "results of vLLM's and SGLang's serving benchmarks: input_lens, output_lens; lengths only",
        frozenset({"input_lens", "output_lens"}),
        _named("start_times:s", "input_lens", "output_lens", ttft="ttfts:s"),
        """\
{"backend": "vllm", "num_prompts": 2, "completed": 2, "input_lens": [600, 1000], \
"output_lens": [3, 1], "start_times": [7.5, 8.0]}
""",
        optional={"time": "start_times", "ttft": "ttfts"},
        zipped=True,
    ),
    "transcript": Known(
        "transcripts of a coding agent: lines of several types, with sessionId and message.usage",
        frozenset(),
        _named(
            "timestamp",
            f"{_USAGE}input_tokens + coalesce({_USAGE}cache_creation_input_tokens, 0) "
            f"+ coalesce({_USAGE}cache_read_input_tokens, 0)",
            f"{_USAGE}output_tokens",
            session="sessionId",
            cached=f"{_USAGE}cache_read_input_tokens",
            id="requestId",
        ),
        """\
{"type": "user", "sessionId": "s", "timestamp": "2026-11-18T11:06:40.000Z", "message": {}}
{"type": "assistant", "sessionId": "s", "timestamp": "2026-11-18T11:06:48.344Z", "message": \
{"usage": {"input_tokens": 4, "cache_creation_input_tokens": 600, "cache_read_input_tokens": 0, \
"output_tokens": 61}}}
{"type": "assistant", "sessionId": "s", "timestamp": "2026-11-18T11:07:03.062Z", "message": \
{"usage": {"input_tokens": 4, "cache_creation_input_tokens": 96, "cache_read_input_tokens": 600, \
"output_tokens": 60}}}
""",
        optional={"id": "requestId"},
        words=("sessionId", "cache_read_input_tokens"),
    ),
}
