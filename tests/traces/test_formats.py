"""What the formats read beside drawn requests, and the keys that they make of it; every fault with
its place; and how files are opened: packed, in folders, of an unknown format."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hicache.core.errors import CallerError
from tests.conversation import beside
from tests.tokenizer import tiny_tokenizer
from traces.formats import FORMATS, open_trace, pages, parse, reading
from traces.formats.base import Trace
from traces.formats.reading import About, Lines
from traces.replaying.account import ceiling_of

from .formats_drawn import SAMPLES
from .rig import HEADER, Capsys, Patch, as_lines, document, mooncake, native, read, write


def rows(raw: bytes) -> list[int]:
    return [int(value) for value in np.frombuffer(raw, dtype="<i8")]


def test_mooncake_pages_are_identified_by_block_and_offset() -> None:
    trace = read(mooncake([70, 80], 600), mooncake([70, 90], 1024))
    first, second = trace.jobs
    paged = trace.paged(128)
    assert rows(paged.prompt_key(first).raw) == [0, 1, 2, 3, 4]
    assert rows(paged.prompt_key(second).raw) == [0, 1, 2, 3, 8, 9, 10, 11]
    # 600 tokens are four whole pages; what is beyond belongs to nobody else, at any depth
    key, other = (rows(paged.key(job, 128 * 12).raw) for job in trace.jobs)
    assert key[:4] == [0, 1, 2, 3]
    assert all(page < 0 for page in key[4:])
    assert len({*key, *other}) == 12 + 12 - 4


def test_mooncake_ids_keep_all_64_bits() -> None:
    low = 1
    ids = [low, low + (1 << 32), low + (1 << 63), -(1 << 63), (1 << 64) - 1]
    trace = read(*(mooncake([item]) for item in ids), mooncake([ids[2]]))
    keys = [trace.paged(512).prompt_key(job).raw for job in trace.jobs]
    assert len(set(keys[:5])) == 5
    assert keys[5] == keys[2]


SEGMENTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), min_size=1, max_size=5)


@given(
    st.lists(st.tuples(SEGMENTS, st.sampled_from(["", "x"])), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_native_pages_have_equal_ids_exactly_where_their_prefixes_are_equal(
    prompts: list[tuple[list[tuple[str, int]], str]], size: int
) -> None:
    requests = [
        native(*segments[:-1] or [("a", 1)], output=segments[-1], namespace=namespace)
        for segments, namespace in prompts
    ]
    trace = read(HEADER, *requests)
    paged = trace.paged(size)
    ids: dict[tuple[str, bytes], int] = {}
    for job in trace.jobs:
        key, chain = paged.key(job, job.input_length + job.output_length - 1), paged.chain(job)
        assert len(chain) == key.pages
        for page, number in enumerate(chain.tolist(), 1):
            prefix = key.namespace, key.raw[: page * key.stride]
            assert ids.setdefault(prefix, number) == number
    assert len({*ids.values()}) == len(ids)


def test_too_many_different_blocks_are_one_line(monkeypatch: Patch) -> None:
    monkeypatch.setattr(pages, "MOST", 3)
    monkeypatch.setattr(reading, "MOST", 3)
    with pytest.raises(CallerError, match="trace:2: expected at most 3 different blocks"):
        read(mooncake([1, 2]), mooncake([1, 3, 4]))
    with pytest.raises(CallerError, match="trace:3: expected at most 3 different segments"):
        read(HEADER, native(("a", 1), output=("b", 1)), native(("c", 1), output=("d", 1)))


@pytest.mark.parametrize(
    ("texts", "places", "rounded"),
    [([], [34, 0], ""), (["--block-size", "16"], [32, 0], ", rounded down to pages of 16")],
)
def test_inspect_says_where_prompts_part(
    texts: list[str], places: list[int], rounded: str, tmp_path: Path, capsys: Capsys
) -> None:
    """A date at the head of a system prompt; one prompt comes twice."""
    prompts = [[1] * 34 + [day] * 94 for day in (2, 3, 4, 2)] + [[5] * 99]
    rows = ({"at": 1_795_000_000, "in": prompt, "out": [6]} for prompt in prompts)
    path = str(write(tmp_path / "ids.jsonl", *rows))
    words = ["--columns", "time=at,input_ids=in,output_ids=out", *texts]
    result = document(tmp_path, "inspect", path, *words)
    parting = [(item["token"], item["requests"]) for item in result["parting"]]
    assert parting == [(places[0], 2), (places[1], 1)]
    message = f"{places[0]} (40%), {places[1]} (20%){rounded} can be reused"
    assert message in " ".join(capsys.readouterr().out.split())


def text(content: str, **about: Any) -> Trace:
    lines = Lines("trace", content.encode().splitlines(keepends=True))
    return parse(lines, about=About(**about))


def records(*rows: dict[str, Any], **about: Any) -> Trace:
    return text(b"".join(as_lines(rows)).decode(), **about)


def test_a_mooncake_request_may_follow_the_one_before_it_in_its_session() -> None:
    first = {"timestamp": 5, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}
    second = {"delay": 1.5, "input_length": 600, "output_length": 2, "hash_ids": [1, 3]}
    trace = records(first | {"session_id": "a"}, second | {"session_id": "a"})
    assert [job.after for job in trace.jobs] == [-1, 0]
    assert [job.session for job in trace.jobs] == [0, 0]
    assert [job.arrival_ns for job in trace.jobs] == [5_000_000, 1_500_000]
    for wrong in ({**second, "session_id": "a"}, {**first, "session_id": "a", "delay": 2}):
        with pytest.raises(CallerError, match="trace:1: expected a timestamp, or a delay"):
            records(wrong)


def test_a_chat_of_bailian_is_a_session() -> None:
    first, second = map(json.loads, SAMPLES["bailian"].splitlines())
    follows = [second | {"parent_chat_id": first["chat_id"]}]
    follows.append(second | {"chat_id": 161, "parent_chat_id": 101})
    other = second | {"chat_id": 162, "parent_chat_id": 7}
    trace = records(first, *follows, other)
    assert [job.session for job in trace.jobs] == [0, 0, 0, 3]
    with pytest.raises(CallerError, match="trace:2: expected a chat_id of its own, found 100 ag"):
        records(first, first)


def request(start: float, length: int = 64, **fields: Any) -> dict[str, Any]:
    ids = [*range(1, length // 64 + 1)]
    return {"t": start, "type": "n", "in": length, "out": 5, "hash_ids": ids, **fields}


def agent(start: float, *requests: dict[str, Any]) -> dict[str, Any]:
    return {"t": start, "type": "subagent", "requests": requests}


@pytest.mark.parametrize("offset", [0.0, 10.0], ids=["relative", "absolute"])
def test_sub_agents_begin_at_their_marker_and_are_followed(offset: float) -> None:
    """A request follows what ended last before it; an agent that still runs is not waited for."""
    requests = [
        request(0, api_time=4),
        agent(10, request(offset, 128, api_time=1), request(offset + 3, 128, api_time=1)),
        request(11, 192, api_time=1),
        agent(12, request(offset + 2 if offset else 0, 128, api_time=1)),
        request(20, 192, api_time=None),
        agent(21, request(21 if offset else 0, 128, api_time=3)),
        agent(22, request(22 if offset else 0, 128, api_time=1)),
        request(26, 256),
    ]
    weka = {"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": requests}
    trace = text(json.dumps(weka))
    # the first agent runs until 14, so the request at 11 follows the first one
    assert [job.after for job in trace.jobs] == [-1, 0, 0, 2, 1, 3, 5, 5, 6]
    delays = [0, 10 - 4, 11 - 4, 0, 13 - 11, 20 - 13, 21 - 20, 22 - 20, 26 - 24]
    assert [job.arrival_ns // 1_000_000_000 for job in trace.jobs] == delays
    assert {job.session for job in trace.jobs} == {0}


def test_dynamo_requests_of_several_files_are_put_in_order(tmp_path: Path) -> None:
    lines = SAMPLES["dynamo"].splitlines()
    tool = {"timestamp": 1, "event": {"schema": "dynamo.request.trace.v1", "event_type": "tool"}}
    for name, content in (("t.000000", lines[1]), ("t.000001", json.dumps(tool) + "\n" + lines[0])):
        packed = gzip.compress(content.encode())
        (tmp_path / f"{name}.jsonl.gz").write_bytes(packed)
    trace = open_trace(str(tmp_path))
    assert [job.output_length for job in trace.jobs] == [40, 30]
    assert [job.arrival_ns for job in trace.jobs] == [0, 500_000_000]
    assert [note[:22] for note in trace.notes] == ["1 rows without these c"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_tokenizer(tmp_path_factory.mktemp("text"))


def test_text_may_come_in_parts_and_needs_a_tokenizer_that_knows_it(tokenizer: str) -> None:
    message = [("user", "a b"), ("assistant", "c c c"), ("user", [{"type": "text", "text": "d"}])]
    messages = [{"role": role, "content": content} for role, content in message]
    content = json.dumps({"body": {"messages": messages}, "custom_id": "1"}) + "\n"
    trace = text(content, tokenizer=tokenizer, wanted_block_size=1)
    assert [job.input_length for job in trace.jobs] == [6]
    with pytest.raises(CallerError, match="found none; give one"):
        text(content)
    with pytest.raises(CallerError, match=r"found .*: WordLevel"):
        text(content.replace('"d"', '"unknown"'), tokenizer=tokenizer)
    with pytest.raises(CallerError, match=r"expected the tokenizer.json of the model"):
        text(content, tokenizer=__file__)


# -- faults

FAULTS: dict[str, list[tuple[str, str, str]]] = {
    # name: (what to replace in the sample, with what, the place and the beginning of the message)
    "azure": [
        ("1000", "-5", " row 2: expected ContextTokens: an integer from 0"),
        ("2023-11-16 00:00:01.0", "16.11.2023", " row 1: expected TIMESTAMP: a date"),
        ("2023-11-16 00:00:01.5", "9999-11-16 00:00:01", " row 2: expected TIMESTAMP: a date"),
    ],
    "bailian": [
        (", 242]", "]", "2: expected 63 ids of blocks (1000 tokens / 16"),
        ('"timestamp": 1.5', '"timestamp": 0', "2: expected a timestamp of at least"),
        ('"chat_id": 101', '"chat_id": "x"', '2: expected chat_id: an integer, found "x"'),
    ],
    "burstgpt": [("1.5,", "1e308,", " row 2: expected Timestamp: a number of s")],
    "chat": [
        ('"value": "six"', '"value": 6', " row 1: expected conversations[3].value: text"),
        ('"conversations": [', '"conversations": 7, "x": [', " row 1: expected conversations: a l"),
    ],
    "dynamo": [
        ('"input_length": 1000', '"input_length": 1800', " row 2: expected 113 ids of blocks"),
        ('16, "input_length": 1', '8, "input_length": 1', " row 2: expected blocks of 16"),
    ],
    "native": [
        ('["d", 2]', '["d", 0]', "3: expected output[1]: an integer >= 1, found 0"),
        ('"after": 0', '"after": 1', "3: expected after: the number of an earlier request"),
        ('"after": 0, ', "", "3: expected a timestamp in each request, or in none"),
        ('"version": 1', '"version": 3', "1: expected version: "),
        ('"version": 1', '"version": true', "1: expected version: "),
        ('"format": "hicache-trace"', '"format": "x"', "1: expected the first line"),
        ('"after": 0', '"afer": 0', "3: expected"),
        ('[["a", 600]]', "[]", "2: expected input: a list of length >= 1"),
        ('[["a", 600]]', '[["a", 0]]', "2: expected input[0][1]: "),
        ('[["a", 600]]', '[["a", 16777216]]', "2: expected"),
        ('"after": 0', '"after": 0, "timestamp": 1', "3: expected either timestamp or after"),
    ],
    "mooncake": [
        ('"timestamp": 1.5, ', "", "2: expected a timestamp in each request, or in none"),
        ('"timestamp": 0', '"timestamp": 9', "2: expected a timestamp of at least 9"),
        ('"input_length": 1000, ', "", "2: expected a field input_length, found none"),
    ],
    "openai": [("1763892005", "17638920050", " row 2: expected created: a number of s")],
    "serving-benchmark": [
        ("1000", '"x"', " row 2: expected input_lens: an integer"),
        ("\n}", "\n}\n{}\n", " [1]: expected one run in the file"),
    ],
    "sglang": [('"2026-06-30T09:15:50"', '"now"', "4: expected JSON, found invalid timestamp")],
    "splitwise": [(",1.5,", ",-1,", " row 2: expected arrival_timestamp: a number")],
    "vllm": [
        ("519, 7]", "519, 7.5]", "4: expected prompt_token_ids of a new request, found none"),
        ("DEBUG 06-14 17:27:55", "17:27:55", "4: expected time: a date"),
        ("Request chatcmpl-b", "Request chatcmpl-a", "4: expected prompt_token_ids of a new re"),
        ("prompt_token_ids: [", "prompt_token_ids: None [", "2: expected prompt_token_ids"),
    ],
    "weka": [
        ('"in": 650', '"in": 6500', " requests[1]: expected 101 ids of blocks"),
        ('"t": 4.0', '"t": "x"', '1: expected requests[1].t: a number, found "x"'),
        ('"requests": [', '"requests": {}, "x": [', "1: expected requests: a list"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_faults_are_one_line_with_their_place(name: str, tokenizer: str) -> None:
    content = SAMPLES[name]
    for old, new, message in FAULTS.get(name, []):
        assert old in content
        with pytest.raises(CallerError) as error:
            text(content.replace(old, new), tokenizer=tokenizer)
        report = str(error.value)
        assert report.startswith(f"trace:{message}"), (old, report)
        assert "\n" not in report
        assert len(report) < 300
    for end in range(1, len(content), 1 + len(content) // 6):
        try:  # a file that was cut reads, or ends in one line
            cut = Lines("t", content[:end].encode().splitlines(keepends=True))
            parse(cut, name, about=About(tokenizer=tokenizer))
        except CallerError as cut_off:
            assert "\n" not in str(cut_off)  # noqa: PT017


# -- opening


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_packed_files_are_read_and_a_cut_one_is_named(pack: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    packed = pack(SAMPLES["mooncake"].encode())
    path.write_bytes(packed)
    assert len(open_trace(str(path)).jobs) == 2
    for content, message in (
        (packed + packed, f"{path}:3: expected a timestamp of at least 1.5"),  # members in a row
        (packed[:-9], "a truncated file; copy the file again"),
        (packed[:12] + bytes(40), "trace.jsonl:1: expected"),
    ):
        path.write_bytes(content)
        with pytest.raises(CallerError, match=message):
            open_trace(str(path))


# -- the real files


def test_the_sessions_of_kv_cache_tester() -> None:
    trace = open_trace(str(beside("weka")))
    jobs = trace.jobs
    assert len(jobs) == 255
    assert jobs.input_tokens == 22_454_694
    assert int(jobs.output_lengths.sum()) == 102_387
    assert len({*jobs.sessions.tolist()}) == int((jobs.afters < 0).sum()) == 15
    assert int(ceiling_of(trace.paged(64), True).sum()) == 20_408_576
    assert not trace.notes
