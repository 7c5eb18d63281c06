"""Formats of one JSON object a line or a file, and logs of servers: a function and a row each.

Where their schemas are from: github.com/kvcache-ai/Mooncake (FAST25-release/traces),
alibaba-edu/qwen-bailian-usagetraces-anon, callanjfox/kv-cache-tester (traces), NVIDIA Dynamo
(dynamo.request.trace.v1), vllm/entrypoints/logger.py, sglang/srt/utils/request_logger.py.
docs/formats.md describes them for users. Other fields than those of the schemas are passed over.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct, field
from msgspec.json import Decoder

from . import base
from ._clock import moment_ns
from .base import About, BlockTokens, Format, Head, Lines, Name, Priority, Row, Time, Tokens

_BLOCK_SIZE = 512  # of Mooncake's published traces
_CHAT_BLOCK_SIZE = 16  # of Bailian, and of tokens that are logged by themselves
_Length = Annotated[int, Meta(ge=0, le=base.MAX_REQUEST_TOKENS)]


# -- Mooncake


class _Mooncake(Struct):
    """Some names are what DynoSim and AIPerf read as well. Ids may use all 64 bits."""

    hash_ids: list[int]
    input_length: Tokens | None = None
    input_tokens: Tokens | None = None
    output_length: Tokens | None = None
    output_tokens: Tokens | None = None
    timestamp: Time | None = None
    created_time: Time | None = None
    delay: Time | None = None
    delay_ms: Time | None = None
    session_id: Name | int | None = None
    request_id: Name | int | None = None
    wait_for: list[Name | int] | Name | int | None = None
    tool_wait_ms: Time = 0
    priority: Priority = 0

    @property
    def time(self) -> Time | None:
        return self.created_time if self.timestamp is None else self.timestamp

    @property
    def pause(self) -> Time | None:
        return self.delay_ms if self.delay is None else self.delay


_SEVERAL = (
    "requests wait for several others; each follows the one of them that comes last in the file."
)
_UNPLAYED = "requests have a tool_wait_ms and wait for no other; it is not played."


def _mooncake(files: Iterable[Lines], about: About) -> Iterator[Row]:
    """A request with `wait_for` follows those that it names; with a delay, that of its session."""
    last: dict[str, int] = {}  # of each session, its last request
    named: dict[str, int] = {}  # by request_id
    count = 0
    for lines in about.each(files):
        for one in lines.records(_Mooncake):
            length = one.input_length or one.input_tokens
            output = one.output_length or one.output_tokens
            if length is None or output is None:
                lines.wrong("input_length and output_length", "none", "add the field")
            if not count:
                about.block_size = about.wanted_block_size or _proved(length, len(one.hash_ids))
                about.timed = bool(one.wait_for) or one.time is not None or one.pause is not None
            base.check_count(lines, len(one.hash_ids), length, about.block_size)
            session = None if one.session_id is None else str(one.session_id)
            before = -1 if session is None else last.get(session, -1)
            after, arrival_ns = _arrival(lines, about, one, before, named)
            if session is not None:
                last[session] = count
            if one.request_id is not None:
                named[str(one.request_id)] = count
            count += 1
            ids, priority = one.hash_ids, one.priority
            yield Row(arrival_ns, length, output, ids, "", after, session, priority)


def _proved(length: int, count: int) -> int:
    """The size of a block of the file, from its first line: the published one, or the one power of
    two that is possible."""
    least = -(-length // count) if count else 1
    most = -(-length // (count - 1)) - 1 if count > 1 else base.MAX_BLOCK_TOKENS
    powers = [1 << power for power in range(25) if least <= 1 << power <= most]
    return _BLOCK_SIZE if _BLOCK_SIZE in powers or len(powers) != 1 else powers[0]


def _arrival(
    lines: Lines, about: About, one: _Mooncake, before: int, named: dict[str, int]
) -> tuple[int, int]:
    """(after, arrival_ns). before: the last request of its session."""
    time, delay = one.time, one.pause
    waits = one.wait_for if isinstance(one.wait_for, list) else [one.wait_for]
    waits = [name for name in waits if name is not None]
    if one.tool_wait_ms and not waits:
        about.notes[_UNPLAYED] += 1
    if waits:
        unknown = [name for name in waits if str(name) not in named]
        if unknown:
            found = base.show(unknown[0])
            lines.wrong("wait_for: the request_id of an earlier line", found, "sort the lines")
        if delay is not None:
            lines.wrong("either wait_for or delay", "both", "remove one of them")
        about.notes[_SEVERAL] += len(waits) > 1
        return max(named[str(name)] for name in waits), base.nanoseconds(one.tool_wait_ms)
    if delay is not None:
        if time is not None or before < 0:
            found = "both" if time is not None else "none before it"
            expected = "a timestamp, or a delay after another request of the same session_id"
            lines.wrong(expected, found, "give it a timestamp alone")
        return before, base.nanoseconds(delay)
    if about.timed != (time is not None):
        lines.wrong("a timestamp in each line, or in none", "some", "give each request a time")
    return -1, 0 if time is None else base.nanoseconds(time)


# -- Bailian


class _Bailian(Struct):
    """Times are in seconds. The last block of a prompt may be padded, so its id can change."""

    chat_id: int
    parent_chat_id: int
    timestamp: Time
    input_length: Tokens
    output_length: Tokens
    hash_ids: list[int]


_OUTSIDE = "requests continue a chat whose earlier turn is not in the file; they begin one here."


def _bailian(files: Iterable[Lines], about: About) -> Iterator[Row]:
    about.block_size = about.wanted_block_size or _CHAT_BLOCK_SIZE
    chats: dict[int, int] = {}  # the first turn of each
    for lines in about.each(files):
        for one in lines.records(_Bailian):
            if one.chat_id in chats:
                lines.wrong("a chat_id of its own", f"{one.chat_id} again", "number each once")
            if one.parent_chat_id != -1 and one.parent_chat_id not in chats:
                about.notes[_OUTSIDE] += 1
            session = chats[one.chat_id] = chats.get(one.parent_chat_id, one.chat_id)
            length = one.input_length
            base.check_count(lines, len(one.hash_ids), length, about.block_size)
            time_ns = base.nanoseconds(one.timestamp, base.NS_PER_S)
            yield Row(time_ns, length, one.output_length, one.hash_ids, session=str(session))


# -- Dynamo


class _Replay(Struct):
    trace_block_size: BlockTokens
    input_length: Tokens
    input_sequence_hashes: list[int]


class _DynamoRequest(Struct):
    request_id: Name
    request_received_ms: Time
    output_tokens: _Length | None = None
    replay: _Replay | None = None


class _Agent(Struct):
    session_id: Name


class _Dynamo(Struct):
    """A record, in an envelope or bare. It is written when its request ends."""

    event: _Dynamo | None = None
    schema: str | None = None
    event_type: str = ""
    request: _DynamoRequest | None = None
    agent_context: _Agent | None = None


_DYNAMO = "dynamo.request.trace.v1"
_TOOLS = "records of tools were passed over."
_NO_REPLAY = "requests without replay hashes were left out."
_NO_OUTPUT = "requests without output tokens were left out; they failed."


def _dynamo(files: Iterable[Lines], about: About) -> Iterator[Row]:
    about.sorts = True
    names: set[str] = set()
    for lines in about.each(files):
        for record in lines.records(_Dynamo):
            record = record.event or record
            request = record.request
            if record.schema != _DYNAMO:
                lines.wrong(f"schema: {_DYNAMO}", base.show(record.schema), base.NO_TRACE)
            if record.event_type != "request_end":
                about.notes[_TOOLS] += 1
                continue
            if request is None or request.request_id in names:
                name = request and base.show(request.request_id)
                lines.wrong("a request with a request_id of its own", f"{name} again", "remove it")
            names.add(request.request_id)
            replay = request.replay
            if replay is None or not request.output_tokens:
                about.notes[_NO_REPLAY if replay is None else _NO_OUTPUT] += 1
                continue
            about.fixed(lines, replay.trace_block_size)
            ids, length = replay.input_sequence_hashes, replay.input_length
            if len(ids) != length // about.block_size:
                base.check_count(lines, len(ids), length, about.block_size)
            time_ns = base.nanoseconds(request.request_received_ms)
            agent = record.agent_context
            session = agent.session_id if agent else None
            output = request.output_tokens
            yield Row(time_ns, length, output, ids, session=session, start_ns=time_ns)


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
    block_size: BlockTokens
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
_OF_A_SESSION = {"hash_id_scope", "block_size"}
_ONE_TOKEN = "requests without output tokens are read with one (a prefill yields the first token)."


def _weka(files: Iterable[Lines], about: About) -> Iterator[Row]:
    """All sessions begin at 0, since no file says when its session began. Other requests follow
    the one that ended last before them, of their agent or, where agents begin and end, of those
    around it; the delay is the time from its end (t + api_time) to their t."""
    about.sorts, about.partial = True, False
    total = 0
    for lines in about.each(files):
        session = lines.document(_Session)
        about.fixed(lines, session.block_size)
        scope = "" if session.hash_id_scope == "global" else lines.path
        turns: list[_Turn] = []
        _flatten(lines, session.requests, "", 0, -1, turns, 0)
        order = sorted(range(len(turns)), key=lambda place: turns[place].start_ns)
        number = {place: total + index for index, place in enumerate(order)}
        for place in order:
            turn = turns[place]
            lines.element, lines.number = turn.element, place + 1
            one, after = turn.request, number.get(turn.before, -1)
            if one.input is None or one.out is None or one.hash_ids is None:
                lines.wrong("in, out and hash_ids", "none", base.NO_TRACE)
            base.check_count(lines, len(one.hash_ids), one.input, about.block_size, whole=True)
            delay = max(0, turn.start_ns - turns[turn.before].end_ns) if after >= 0 else 0
            about.notes[_ONE_TOKEN] += not one.out
            row = Row(delay, one.input, one.out or 1, one.hash_ids, scope, after, lines.path)
            yield row._replace(start_ns=turn.start_ns)
        total += len(turns)
        lines.element = ""


def _flatten(
    lines: Lines,
    requests: Sequence[_Weka],
    path: str,
    offset_ns: int,
    before: int,
    turns: list[_Turn],
    depth: int,
) -> None:
    """Appends the requests of a session or a sub-agent. before: the turn during or after which it
    begins."""
    if depth > _MOST_DEEP:
        lines.wrong(f"agents within agents, {_MOST_DEEP} deep", "more", base.NO_TRACE)
    last_ns = offset_ns
    begun: list[int] = []  # the last turns of sub-agents since the last request
    for place, request in enumerate(requests):
        lines.element = element = f"{path}.requests[{place}]".removeprefix(".")
        start_ns = offset_ns + base.nanoseconds(request.t, base.NS_PER_S)
        if start_ns > base.MAX_TIME_MS * base.NS_PER_MS:
            most = base.MAX_TIME_MS // 1000
            lines.wrong(f"t: at most {most} seconds", base.show(request.t), "correct the field")
        base.not_backwards(lines, start_ns, last_ns)
        last_ns = start_ns
        if request.type == "subagent":
            inner = request.requests
            if inner:
                # from its marker, or from the start of the session, as in copies of these traces
                from_marker = base.nanoseconds(inner[0].t, base.NS_PER_S) < start_ns
                start = start_ns if from_marker else 0
                _flatten(lines, inner, element, start, before, turns, depth + 1)
                begun.append(len(turns) - 1)
            continue
        ended = [before, *(place for place in begun if turns[place].end_ns <= start_ns)]
        previous = max(ended, key=lambda place: turns[place].end_ns if place >= 0 else -1)
        end_ns = start_ns + base.nanoseconds(request.api_time or 0, base.NS_PER_S)
        turns.append(_Turn(start_ns, end_ns, previous, element, request))
        before, begun = len(turns) - 1, []


# -- logs of servers

_DATE = re.compile(r"\b(?:INFO|DEBUG) (\d\d-\d\d \d\d:\d\d:\d\d) ")
_ASKED = re.compile(r"\b(?:Received request (\S{1,256}): prompt: |Request (\S{1,256}) details: )")
_ANSWERED = re.compile(r"\bGenerated response (\S{1,256}?)(?: \([a-z ]{1,20}\))?(?: details)?: ")
_YEAR_NS = 366 * 86400 * base.NS_PER_S
_NO_ANSWER = (
    "requests have an output of one token: the log has no token ids of their answers "
    "(--enable-log-outputs)."
)
_NO_IDS = "log them with VLLM_LOGGING_LEVEL=DEBUG, or read another log with --columns"


def _is_vllm(head: Head) -> bool:
    return not head.line.startswith("{") and (
        "Received request " in head.text or _ASKED.search(head.text) is not None
    )


class _Asked(NamedTuple):
    name: str
    line: int
    time_ns: int
    length: int
    blocks: array[int]


def _vllm(files: Iterable[Lines], about: About) -> Iterator[Row]:
    """Token ids of prompts ("Received request ID: prompt: .." up to 0.11.0, "Request ID details:
    .." after it) and of answers ("Generated response ID", which may come in pieces). Times have no
    year and no part of a second."""
    about.partial, about.sorts = False, True
    about.block_size = about.wanted_block_size or _CHAT_BLOCK_SIZE
    for lines in about.each(files):
        asked: dict[str, _Asked] = {}
        answered: dict[str, int] = {}
        last_ns = 0
        for text in lines.texts():
            if found := _ASKED.search(text):
                name = found[1] or found[2]
                ids = _ids(lines, text, "prompt_token_ids")
                if name in asked or not ids:
                    what = f"{base.shorten(name)} again" if name in asked else "none"
                    lines.wrong("prompt_token_ids of a new request", what, _NO_IDS)
                last_ns = _time_ns(lines, text, last_ns)
                blocks = base.blocks_of(ids, about.block_size)
                asked[name] = _Asked(name, lines.number, last_ns, len(ids), blocks)
            elif found := _ANSWERED.search(text):
                count = len(_ids(lines, text, "output_token_ids"))
                answered[found[1]] = answered.get(found[1], 0) + count
        if not asked:
            lines.wrong("requests with prompt_token_ids", "none", _NO_IDS)
        for one in asked.values():
            lines.number = one.line
            output = answered.get(one.name, 0)
            about.notes[_NO_ANSWER] += not output
            yield Row(one.time_ns, one.length, output or 1, one.blocks, start_ns=one.time_ns)


def _time_ns(lines: Lines, text: str, last_ns: int) -> int:
    """The time of a line, in a year that has all days. After a new year it is in the next one."""
    found = _DATE.search(text)
    try:
        time_ns = moment_ns(f"2000-{found[1]}" if found else "")
    except ValueError:
        lines.wrong("a time such as INFO 06-14 17:27:48", base.shorten(text), "correct the line")
    return time_ns + _YEAR_NS if time_ns + _YEAR_NS // 2 < last_ns else time_ns


def _ids(lines: Lines, text: str, name: str) -> array[int]:
    """A list of token ids. The last one of the line counts: text of a user may be before it."""
    start = text.rfind(f"{name}: [")
    if start < 0:
        return array("q")
    start += len(name) + 2
    try:
        ids = msgspec.json.decode(text[start : text.index("]", start) + 1], type=list[int])
        tokens = array("q", ids)
    except (ValueError, OverflowError):
        found = base.shorten(text[start : start + 60])
        lines.wrong(f"{name}: a list of integers", found, "correct the line")
    if len(tokens) > base.MAX_REQUEST_TOKENS:
        lines.wrong(f"at most {base.MAX_REQUEST_TOKENS} {name}", "more", "shorten the request")
    return tokens


class _Meta(Struct):
    prompt_tokens: _Length
    completion_tokens: _Length
    e2e_latency: Time


class _Out(Struct):
    meta_info: _Meta


class _Obj(Struct):
    input_ids: list[int] | None = None


class _Finished(Struct):
    """A request arrived e2e_latency seconds before its line."""

    timestamp: Name
    out: _Out
    obj: _Obj


_BEGIN, _FINISHED = b'{"timestamp": ', b'"event": "request.finished"'
_NOTHING = "requests without a prompt or an output were left out."
_LEVEL = "log with --log-requests-level 3, or with 1 for lengths only"


def _sglang(files: Iterable[Lines], about: About) -> Iterator[Row]:
    """Lines with an object whose event is request.finished, among others. Where the first request
    has input_ids, prompts are identified by them in whole blocks; else there are lengths only."""
    about.sorts, about.partial = True, False
    decoder, begun = Decoder(_Finished), False
    for lines in about.each(files):
        for line in lines.each():
            start = line.find(_BEGIN)
            if start < 0 or _FINISHED not in line:
                continue
            one = lines.decoded(decoder, line[start:])
            ids, told = one.obj.input_ids, one.out.meta_info
            if not begun and ids is None:
                about.without_blocks(lines)
            elif not begun:
                about.block_size = about.wanted_block_size or _CHAT_BLOCK_SIZE
            begun = True
            try:
                ended_ns = moment_ns(one.timestamp)
            except ValueError:
                found = base.show(one.timestamp)
                lines.wrong("timestamp: a date such as 2026-06-30T09:15:47.28", found, "correct it")
            time_ns = max(0, ended_ns - base.nanoseconds(told.e2e_latency, base.NS_PER_S))
            length, output = told.prompt_tokens, told.completion_tokens
            blocks: Sequence[int] = ()
            if not length or not output:
                about.notes[_NOTHING] += 1
                continue
            if about.identity:
                if ids is None or len(ids) != length:
                    lines.wrong(f"obj.input_ids: the {length} tokens", base.show(ids), _LEVEL)
                try:
                    blocks = base.blocks_of(array("q", ids), about.block_size)
                except OverflowError:
                    lines.wrong("obj.input_ids of at most 63 bits", "a larger one", _LEVEL)
            yield Row(time_ns, length, output, blocks, start_ns=time_ns)


LINES = {
    "bailian": Format(
        "Qwen / Bailian usage: chat_id, parent_chat_id, timestamp (s), hash_ids of 16 tokens",
        lambda head: {"chat_id", "parent_chat_id", "hash_ids"} <= head.keys,
        _bailian,
    ),
    "dynamo": Format(
        "Dynamo request traces (DYN_REQUEST_TRACE), a file or a folder of segments",
        lambda head: "dynamo.request.trace" in head.text and '"event_type"' in head.text,
        _dynamo,
        folder=".jsonl",
    ),
    "weka": Format(
        "sessions of coding agents (kv-cache-tester): a JSON file each, or their folder",
        lambda head: "requests" in head.keys and not head.keys.isdisjoint(_OF_A_SESSION),
        _weka,
        folder=".json",
    ),
    "mooncake": Format(
        "timestamp (ms), input_length, output_length, hash_ids of 512 tokens or --block-size",
        lambda head: "hash_ids" in head.keys and head.line.startswith("{"),
        _mooncake,
    ),
    "sglang": Format(
        "logs of an SGLang server: --log-requests --log-requests-format json",
        lambda head: '{"timestamp": ' in head.text and '"event": "request.' in head.text,
        _sglang,
    ),
    "vllm": Format("logs of a vLLM server: --enable-log-requests, with token ids", _is_vllm, _vllm),
}
