"""Formats of one JSON object a line or a file, logs of a vLLM server, and text, a function each.

Where their schemas are from: github.com/kvcache-ai/Mooncake (FAST25-release/traces),
alibaba-edu/qwen-bailian-usagetraces-anon, callanjfox/kv-cache-tester (traces),
vllm/entrypoints/logger.py. Other fields than those of the schemas are passed over.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, field
from msgspec.json import Decoder

from hicache.core.errors import CallerError
from hicache.files import text_of

from ..terminal.options import library
from . import reading
from .base import MAX_REQUEST_TOKENS, MAX_TIME_MS, NS_PER_MS, NS_PER_S
from .reading import NO_TRACE, About, Format, Head, Lines, Name, Row, Time, Tokens
from .tables import documents

_Length = Annotated[int, Meta(ge=0, le=MAX_REQUEST_TOKENS)]


# -- ids of blocks


class _Hashes(Struct):
    """Mooncake's, with `delay` as AIPerf has it, and with the chats of Bailian. Ids may use all 64
    bits. Where the last block of a prompt is padded, its id can change."""

    input_length: Tokens
    output_length: Tokens
    hash_ids: list[int]
    timestamp: Time | None = None
    delay: Time | None = None
    session_id: Name | int | None = None
    priority: reading.Priority = 0
    chat_id: int | None = None
    parent_chat_id: int = -1


def _hashes(unit_ns: int, block_size: int, lines: Lines, about: About) -> Iterator[Row]:
    """A request with a delay follows the one before it in its session."""
    about.block_size = about.wanted_block_size or block_size
    last = about.seen  # of each session, its last request
    chats: dict[int, int] = {}  # the first turn of each
    for record in lines.records(_Hashes):
        reading.check_count(lines, len(record.hash_ids), record.input_length, about.block_size)
        session, time, after = record.session_id, record.timestamp, -1
        if record.chat_id is not None:
            if record.chat_id in chats:
                lines.wrong("a chat_id of its own", f"{record.chat_id} again", "number each once")
            session = chats[record.chat_id] = chats.get(record.parent_chat_id, record.chat_id)
        if record.delay is not None:
            after = last.get(str(session), -1)
            if time is not None or after < 0:
                expected = "a timestamp, or a delay after another request of the same session_id"
                lines.wrong(expected, "both or none", "give it a timestamp alone")
            time = record.delay
        name = None if session is None else str(session)
        if name is not None:
            last[name] = about.count
        arrival_ns = None if time is None else reading.nanoseconds(time, unit_ns)
        lengths = record.input_length, record.output_length
        yield Row(arrival_ns, *lengths, record.hash_ids, "", after, name, record.priority)


# -- sessions of coding agents


class _Weka(Struct):
    """A request, or an agent that the session began, with requests of its own. t: seconds from the
    start of the session. There is an id for each *whole* block of a prompt."""

    t: Time
    type: str = ""
    input: Tokens | None = field(name="in", default=None)
    out: _Length | None = None
    hash_ids: list[int] | None = None
    api_time: Time | None = None
    requests: list[_Weka] | None = None


class _Session(Struct):
    block_size: reading.BlockTokens
    requests: list[_Weka]
    hash_id_scope: str = "local"


class _Turn(NamedTuple):
    """A request. before: the place among the turns of the one that it follows, or -1."""

    start_ns: int
    end_ns: int
    before: int
    element: str
    request: _Weka


_MOST_DEEP = 16
_ONE_TOKEN = "requests without output tokens are read with one (a prefill yields the first token)."


def _weka(lines: Lines, about: About) -> Iterator[Row]:
    """All sessions begin at 0, since no file says when its session began. Other requests follow
    the one that ended last before them, of their agent or, where agents begin and end, of those
    around it; the delay is the time from its end (t + api_time) to their t."""
    about.sorts, about.partial = True, False
    session = lines.document(_Session)
    about.fixed(lines, session.block_size)
    scope = "" if session.hash_id_scope == "global" else lines.path
    turns: list[_Turn] = []
    _flatten(lines, session.requests, "", 0, -1, turns)
    order = sorted(range(len(turns)), key=lambda place: turns[place].start_ns)
    number = {place: about.count + index for index, place in enumerate(order)}
    for place in order:
        turn = turns[place]
        lines.element, lines.number = turn.element, place + 1
        weka, after = turn.request, number.get(turn.before, -1)
        if weka.input is None or weka.out is None or weka.hash_ids is None:
            lines.wrong("in, out and hash_ids", "none", NO_TRACE)
        reading.check_count(lines, len(weka.hash_ids), weka.input, about.block_size, full=True)
        delay = max(0, turn.start_ns - turns[turn.before].end_ns) if after >= 0 else 0
        about.notes[_ONE_TOKEN] += not weka.out
        row = Row(delay, weka.input, weka.out or 1, weka.hash_ids, scope, after, lines.path)
        yield row._replace(start_ns=turn.start_ns)


def _flatten(
    lines: Lines, requests: list[_Weka], path: str, offset_ns: int, before: int, turns: list[_Turn]
) -> None:
    """Appends the requests of a session or a sub-agent. before: the turn during or after which it
    begins."""
    if path.count(".") >= _MOST_DEEP:
        lines.wrong(f"agents within agents, {_MOST_DEEP} deep", "more", NO_TRACE)
    last_ns = offset_ns
    begun: list[int] = []  # the last turns of sub-agents since the last request
    for place, request in enumerate(requests):
        lines.element = element = f"{path}.requests[{place}]".removeprefix(".")
        start_ns = offset_ns + reading.nanoseconds(request.t, NS_PER_S)
        if not last_ns <= start_ns <= MAX_TIME_MS * NS_PER_MS:
            expected = f"t: from that of the request before to {MAX_TIME_MS // 1000} seconds"
            lines.wrong(expected, reading.show(request.t), "correct the field")
        last_ns = start_ns
        if request.type == "subagent":
            inner = request.requests
            if inner:
                # from its marker, or from the start of the session, as in copies of these traces
                from_marker = reading.nanoseconds(inner[0].t, NS_PER_S) < start_ns
                _flatten(lines, inner, element, start_ns if from_marker else 0, before, turns)
                begun.append(len(turns) - 1)
            continue
        ended = [before, *(place for place in begun if turns[place].end_ns <= start_ns)]
        previous = max(ended, key=lambda place: turns[place].end_ns if place >= 0 else -1)
        end_ns = start_ns + reading.nanoseconds(request.api_time or 0, NS_PER_S)
        turns.append(_Turn(start_ns, end_ns, previous, element, request))
        before, begun = len(turns) - 1, []


# -- logs of servers

_DATE = re.compile(r"\b(?:INFO|DEBUG) (\d\d-\d\d \d\d:\d\d:\d\d) ")
_BEGUN = re.compile(r"\b(?:Received request (\S{1,256}): prompt: |Request (\S{1,256}) details: )")
_SERVED = r"Received request |\bRequest \S{1,256} details: "
_ANSWERED = re.compile(r"\bGenerated response (\S{1,256}?)(?: \([a-z ]{1,20}\))?(?: details)?: ")
_YEAR_NS = 366 * 86400 * NS_PER_S
_NO_TOKENS = (
    "requests have an output of one token: the log has no token ids of their answers "
    "(--enable-log-outputs)."
)
_NO_IDS = "log them with VLLM_LOGGING_LEVEL=DEBUG, or read another log with --columns"


def _vllm(lines: Lines, about: About) -> Iterator[Row]:
    """Token ids of prompts ("Received request ID: prompt: .." up to 0.11.0, "Request ID details:
    .." after it) and of answers ("Generated response ID", which may come in pieces). Times have no
    year and no part of a second; after a new year they are in the next one."""
    about.of_tokens()
    about.sorts = True
    requested: dict[str, tuple[int, Row]] = {}  # its line, and the request
    answered: Counter[str] = Counter()
    last_ns = 0
    for line in lines.each():
        text = lines.text(line)
        if match := _BEGUN.search(text):
            name, ids = match[1] or match[2], _ids(text, "prompt_token_ids")
            if name in requested or not ids:
                what = f"{reading.shorten(name)} again" if name in requested else "none"
                lines.wrong("prompt_token_ids of a new request", what, _NO_IDS)
            date = _DATE.search(text)
            time_ns = lines.moment_ns("time", f"2000-{date[1]}" if date else text[:40])
            last_ns = time_ns + _YEAR_NS * (time_ns + _YEAR_NS // 2 < last_ns)
            row = Row(last_ns, len(ids), 1, reading.blocks_of(ids, about.block_size))
            requested[name] = lines.number, row
        elif match := _ANSWERED.search(text):
            answered[match[1]] += len(_ids(text, "output_token_ids"))
    if not requested:
        lines.wrong("requests with prompt_token_ids", "none", _NO_IDS)
    for name, (lines.number, row) in requested.items():
        about.notes[_NO_TOKENS] += not answered[name]
        yield row._replace(output_length=answered[name] or 1)


def _ids(text: str, name: str) -> array[int]:
    """A list of token ids. The last one of the line counts: text of a user may be before it."""
    lists = re.findall(rf"{name}: \[((?:\d{{1,18}}, )*\d{{1,18}}|)\]", text)
    return array("q", map(int, re.findall(r"\d+", lists[-1] if lists else "")))


# -- text

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


def _is_chat(head: Head) -> bool:
    if head.keys & {*_LISTS} or {"body", "custom_id"} <= head.keys:
        return True
    return "request" in head.keys and '"messages"' in head.text and '"role"' in head.text


def _chat(lines: Lines, about: About) -> Iterator[Row]:
    """Conversations and requests as text, which a tokenizer turns into ids, without those that the
    template of a chat adds: a list of objects, or one on each line, whose messages may also be
    within `body` or `request`.

    Where the last message is not of the assistant, the object is one request: all messages are its
    prompt. Its answer is the text of `response` or `choices`, if there is one. Else each message of
    the assistant is a request: what is before it is the prompt, itself the output. A request
    follows the one before it in its conversation. What an object with a time repeats of one before
    it is no request again."""
    encode = _tokenizer(about.tokenizer)
    about.of_tokens()
    about.knows_output = about.sorts = True
    known: set[bytes] = set()  # digests of conversations up to an answer
    decoder = Decoder(_Object)
    for raw in documents(lines):
        item = lines.decoded(decoder, raw)
        inner = next(
            (part for part in (item.body, item.request) if isinstance(part, _Object)), item
        )
        messages = inner.conversations or inner.conversation or inner.messages
        if messages is None:
            lines.wrong(f"a list of messages ({', '.join(_LISTS)})", "none", NO_TRACE)
        times = (item.timestamp, item.time, item.created_at, item.created)
        when = next((time for time in times if time is not None), None)
        time_ns = 0
        if when is not None:
            is_small = isinstance(when, int | float) and when < _RELATIVE
            time_ns = lines.moment_ns("timestamp", str(when), "ms" if is_small else "")
        ids = [encode(message.text) for message in messages]
        if messages and not messages[-1].is_answer:
            turns = [(array("q", chain.from_iterable(ids)), encode(_answer(item)))]
            about.notes[_NO_ANSWER] += bool(turns[0][0]) and not turns[0][1]
        else:
            turns = _turns(messages, ids, about, set() if when is None else known)
        after, session = -1, str(about.count) if len(turns) > 1 else None
        for tokens, answer in turns:
            if not tokens:
                about.notes[_EMPTY] += 1
                continue
            blocks = reading.blocks_of(tokens + array("q", answer), about.block_size)
            row = Row(0 if after >= 0 else time_ns, len(tokens), max(1, len(answer)), blocks)
            number = about.count
            yield row._replace(after=after, session=session, start_ns=time_ns)
            after = number


def _turns(
    messages: list[_Message], ids: list[Sequence[int]], about: About, known: set[bytes]
) -> list[tuple[array[int], Sequence[int]]]:
    """The prompt and the answer of each message of the assistant. known: digests of what earlier
    objects have up to an answer."""
    pairs = []
    tokens = array("q")
    for place, (message, answer) in enumerate(zip(messages, ids, strict=True)):
        prompt, tokens = tokens, tokens + array("q", answer)
        if message.is_answer and not (answer and prompt):
            about.notes[_UNANSWERED] += 1
        elif message.is_answer:
            digest = hashlib.blake2b(tokens.tobytes(), digest_size=8).digest()
            if digest in known and place < len(messages) - 1:
                about.notes[_AGAIN] += 1
            else:
                pairs.append((prompt, answer))
            known.add(digest)
    return pairs


def _answer(item: _Object) -> str:
    """The text with which a request was answered; empty if the object has none."""

    def within(value: Any, name: str) -> Any:
        return value.get(name) if isinstance(value, dict) else None

    response = within(item.response, "body") or item.response
    if isinstance(response, str):
        return response
    choices = within(response, "choices") or item.choices
    first = choices[0] if isinstance(choices, list) and choices else None
    content = within(within(first, "message") or {"content": within(first, "text")}, "content")
    return content if isinstance(content, str) else ""


def _tokenizer(path: str | None) -> Callable[[str], Sequence[int]]:
    """The function from text to ids, without special tokens, of a tokenizer.json."""

    def refused(text: str, do: str) -> CallerError:
        expected = "expected the tokenizer.json of the model, for a trace of text"
        return CallerError(f"--tokenizer: {expected}, found {text}; {do}")

    if path is None:
        raise refused("none", "give one")
    tokenizers = library("tokenizers", "text")
    text = text_of(path, "tokenizer", _MOST_BYTES, "name a tokenizer.json")

    def tried(work: Callable[[str], Any], text: str) -> Any:
        try:
            return work(text)
        except Exception as error:  # the library raises Exception itself
            result = f"{path}: {str(error).partition(chr(10))[0][:120]}"
            raise refused(result, "name another tokenizer") from None

    encode = tried(tokenizers.Tokenizer.from_str, text).encode
    return lambda text: tried(partial(encode, add_special_tokens=False), text).ids


LINES = {
    "bailian": Format(
        "Qwen / Bailian usage: chat_id, parent_chat_id, timestamp (s), hash_ids of 16 tokens",
        lambda head: {"chat_id", "parent_chat_id", "hash_ids"} <= head.keys,
        partial(_hashes, NS_PER_S, 16),
    ),
    "weka": Format(
        "sessions of coding agents (kv-cache-tester): a JSON file each, or their folder",
        lambda head: (
            "requests" in head.keys and not head.keys.isdisjoint({"hash_id_scope", "block_size"})
        ),
        _weka,
        folder=True,
    ),
    "mooncake": Format(
        "timestamp (ms), input_length, output_length, hash_ids of 512 tokens or --block-size",
        lambda head: "hash_ids" in head.keys and head.line.startswith("{"),
        partial(_hashes, NS_PER_MS, 512),
    ),
    "vllm": Format(
        "logs of a vLLM server: --enable-log-requests, with token ids",
        lambda head: bool(re.search(_SERVED, head.text)) and not head.line.startswith("{"),
        _vllm,
    ),
}
CHAT = Format(
    "conversations or requests as text, ShareGPT or OpenAI messages; needs --tokenizer",
    _is_chat,
    _chat,
)
