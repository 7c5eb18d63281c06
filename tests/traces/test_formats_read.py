"""What each format reads beside drawn requests, every fault with its place, and how files are
opened: packed, in folders, of an unknown or a doubtful format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from hicache import registry
from hicache.core.errors import CallerError
from tests.conversation import beside
from tests.tokenizer import tiny_tokenizer
from traces.cli import main
from traces.formats._open import FORMATS, open_trace, parse
from traces.formats.base import Lines, Trace
from traces.replaying.account import ceiling_of

from .rig import Capsys, Patch, as_lines, mooncake


def sample(name: str) -> str:
    return str(registry.load(FORMATS, name).SAMPLE)


def text(content: str, **about: Any) -> Trace:
    return parse(Lines("trace", content.encode().splitlines(keepends=True)), **about)


def blocks(*pairs: tuple[int, int], **about: Any) -> Trace:
    """A Mooncake trace. pairs: tokens and ids of each request."""
    records = [mooncake([*range(ids)], length) for length, ids in pairs]
    return parse(Lines("trace", as_lines(records)), **about)


# -- the size of a block


def test_lengths_prove_the_size_of_a_block() -> None:
    assert blocks((600, 2)).block_size == 512
    assert blocks((33, 3), (40, 3)).block_size == 16
    assert blocks((33, 3), (40, 3), wanted_block_size=16).block_size == 16
    assert blocks((145, 4), (96, 2)).block_size == 48  # the only size that is left
    # a file that does not contradict the published size has it
    assert blocks((10, 1)).block_size == 512


@pytest.mark.parametrize(
    ("pairs", "wanted", "said"),
    [
        (((64, 3),), 0, "found blocks that can have any from 22 to 31; give it with --block-size"),
        (((33, 3), (33, 2)), 0, "trace:2: expected 3 hash_ids (input_length 33 / 16, rounded up)"),
        (((33, 3), (600, 2)), 16, "trace:2: expected 38 hash_ids (input_length 600 / 16"),
        (((600, 2),), 16, "or give the size of the blocks with --block-size"),
        (((1, 1), (70000, 1), (100, 0)), 0, "expected 1 hash_ids"),
    ],
)
def test_a_doubtful_size_of_a_block_is_one_line(
    pairs: tuple[tuple[int, int], ...], wanted: int, said: str
) -> None:
    with pytest.raises(CallerError) as error:
        blocks(*pairs, wanted_block_size=wanted)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_block_size_belongs_to_blocks() -> None:
    for name in ("azure", "burstgpt", "serving-benchmark", "native"):
        with pytest.raises(CallerError, match="--block-size: expected a trace with ids"):
            text(sample(name), wanted_block_size=16)
    with pytest.raises(CallerError, match="blocks of 64; leave the option out"):
        text(sample("weka"), wanted_block_size=16)


# -- single formats


def test_mooncake_reads_the_names_that_replayers_accept() -> None:
    first = {"created_time": 5, "input_tokens": 600, "output_tokens": 2, "hash_ids": [1, 2]}
    second = {"delay": 1.5, "input_length": 600, "output_length": 2, "hash_ids": [1, 3]}
    trace = parse(Lines("t", as_lines([first | {"session_id": "a"}, second | {"session_id": "a"}])))
    assert [job.after for job in trace.jobs] == [-1, 0]
    assert [job.session for job in trace.jobs] == [0, 0]
    assert [job.arrival_ns for job in trace.jobs] == [5_000_000, 1_500_000]
    for wrong, said in (
        ({**first, "timestamp": 5}, "one of timestamp, created_time, found more than one"),
        ({**second, "session_id": "a"}, "delay only after another request of the same"),
        ({**first, "session_id": "a", "delay": 2}, "delay only after another request"),
    ):
        with pytest.raises(CallerError, match=f"t:1: expected {said}"):
            parse(Lines("t", as_lines([wrong])))


def test_a_chat_of_bailian_is_a_session() -> None:
    first, second = sample("bailian").splitlines()
    third = json.loads(second) | {"chat_id": 161, "parent_chat_id": 160, "timestamp": 70}
    other = third | {"chat_id": 162, "parent_chat_id": 7}
    trace = parse(Lines("t", as_lines([json.loads(first), json.loads(second), third, other])))
    assert [job.session for job in trace.jobs] == [0, 0, 0, 3]
    assert [note[:10] for note in trace.notes] == ["1 requests"]
    # the last block of the first turn has another id in the second one
    assert ceiling_of(trace.paged(16), True).tolist()[1] == 32 * 16
    with pytest.raises(CallerError, match="t:2: expected a chat_id of its own, found 159 again"):
        parse(Lines("t", as_lines([json.loads(first), json.loads(first)])))


def weka(*requests: dict[str, Any], **fields: Any) -> str:
    return json.dumps(
        {"id": "x", "block_size": 64, "hash_id_scope": "local", **fields, "requests": requests}
    )


def request(start: float, length: int = 64, **fields: Any) -> dict[str, Any]:
    ids = [*range(1, length // 64 + 1)]
    return {"t": start, "type": "n", "in": length, "out": 5, "hash_ids": ids, **fields}


def agent(start: float, *requests: dict[str, Any]) -> dict[str, Any]:
    return {"t": start, "type": "subagent", "requests": requests}


@pytest.mark.parametrize("offset", [0.0, 10.0], ids=["relative", "absolute"])
def test_sub_agents_begin_at_their_marker_and_are_followed(offset: float) -> None:
    """A request follows what ended last before it; an agent that still runs is not waited for."""
    trace = text(
        weka(
            request(0, api_time=4),
            agent(10, request(offset, 128, api_time=1), request(offset + 3, 128, api_time=1)),
            request(11, 192, api_time=1),
            agent(12, request(offset + 2 if offset else 0, 128, api_time=1)),
            request(20, 192, api_time=None),
            request(26, 256),
        )
    )
    starts = [0, 10, 11, 12, 13, 20, 26]
    assert [job.index for job in trace.jobs] == [*range(7)]
    # the first agent runs until 14, so the request at 11 follows the first one
    assert [job.after for job in trace.jobs] == [-1, 0, 0, 2, 1, 3, 5]
    delays = [0, 10 - 4, 11 - 4, 0, 13 - 11, 20 - 13, 26 - 20]
    assert [job.arrival_ns // 1_000_000_000 for job in trace.jobs] == delays
    assert {job.session for job in trace.jobs} == {0}
    assert len(starts) == len(trace.jobs)


def test_dynamo_requests_are_put_in_order(tmp_path: Path) -> None:
    lines = sample("dynamo").splitlines()
    tool = {
        "timestamp": 1,
        "event": {"schema": "dynamo.request.trace.v1", "event_type": "tool_end"},
    }
    for name, content in (("t.000000", lines[1]), ("t.000001", json.dumps(tool) + "\n" + lines[0])):
        packed = gzip.compress(content.encode())
        (tmp_path / f"{name}.jsonl.gz").write_bytes(packed)
    trace = open_trace(str(tmp_path))
    assert [job.output_length for job in trace.jobs] == [3, 1]
    assert [job.arrival_ns for job in trace.jobs] == [0, 500_000_000]
    assert trace.notes == ("1 records of tools were passed over.",)
    with pytest.raises(CallerError, match='t:2: expected request_ids that differ, found "a" again'):
        parse(Lines("t", [lines[0].encode() + b"\n", lines[0].encode() + b"\n"]))


def test_a_benchmark_without_starts_says_so() -> None:
    run = {"input_lens": [5, 6, 7], "output_lens": [1, 0, 2]}
    trace = text(json.dumps(run))
    assert [job.input_length for job in trace.jobs] == [5, 7]
    assert [note[:40] for note in trace.notes] == [
        "2 requests arrive at once: the file does",
        "1 requests without a prompt or an answer",
    ]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_tokenizer(tmp_path_factory.mktemp("text"))


def test_conversations_share_what_is_said_and_answered(tokenizer: str) -> None:
    parts = [
        ("system", "a a"),
        ("user", "b"),
        ("assistant", "c c c"),
        ("user", "d"),
        ("assistant", "e"),
    ]
    messages = [{"role": role, "content": content} for role, content in parts]
    other = [
        *messages[:1],
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
        *messages[2:3],
    ]
    content = "".join(
        json.dumps({"body": {"messages": one}, "custom_id": "1"}) + "\n"
        for one in (messages, other)
    )
    trace = text(content, tokenizer=tokenizer, wanted_block_size=1)
    assert [(job.input_length, job.output_length, job.after) for job in trace.jobs] == [
        (3, 3, -1),
        (7, 1, 0),
        (3, 3, -1),
    ]
    # six tokens of the first turn, of which the last has no KV
    assert ceiling_of(trace.paged(1), True).tolist() == [0, 5, 3]
    with pytest.raises(CallerError, match="found none; give the tokenizer"):
        text(content)
    with pytest.raises(CallerError, match="expected a text that it can encode, found: WordLevel"):
        text(content.replace('"d"', '"unknown"'), tokenizer=tokenizer)
    with pytest.raises(CallerError, match=r"expected a tokenizer.json, found: "):
        text(content, tokenizer=__file__)


# -- faults

FAULTS: dict[str, list[tuple[str, str, str]]] = {
    # name: (what to replace in the sample, with what, the place and the beginning of the message)
    "azure": [
        ("1000", "-5", "trace: row 2: expected ContextTokens: an integer from 0"),
        ("2023-11-16 18:15:46", "16.11.2023", "trace: row 1: expected TIMESTAMP: a number, or a d"),
        (",109", "", "trace:3: expected a line of CSV, found Expected Number of Columns: 3 Found"),
        ("2023-11-16 18:15:46", "1960-11-16 18:15:46", "trace: row 1: expected TIMESTAMP: a num"),
        ("2023-11-16 18:15:50", "9999-11-16 18:15:50", "trace: row 2: expected TIMESTAMP: a num"),
    ],
    "bailian": [
        ("34, 35", "34", "trace:2: expected 34 hash_ids (input_length 530 / 16"),
        ("62.5", "60", "trace:2: expected a timestamp of at least"),
        ('"chat_id": 160', '"chat_id": "x"', "trace:2: expected chat_id: an integer"),
    ],
    "burstgpt": [
        ("45.5", "nan", "trace: row 2: expected Timestamp: a number"),
        ("45.5", "1e308", "trace: row 2: expected Timestamp: seconds from 0"),
        ("600", "6e2", "trace: row 1: expected Request tokens: an integer"),
    ],
    "chat": [
        ('"value": "six"', '"value": 6', "trace: [0].conversations[3]: expected value: text"),
        ('"from": "human"', '"from": 1', "trace: [0].conversations[0]: expected from: text"),
        ("}]}]", "}]}", "trace:2: expected the end of the list"),
        ('"six"', "six", "trace:1: expected JSON"),
    ],
    "dynamo": [
        ('"input_length": 700', '"input_length": 1800', "trace:2: expected 4 input_sequence_ha"),
        ('512, "input_length": 7', '16, "input_length": 7', "trace:2: expected blocks of 512"),
        ('"request_id": "b"', '"request_id": "a"', "trace:2: expected request_ids that differ"),
    ],
    "log": [
        ("600,40", "600", "trace:2: expected a line of CSV, found Expected Number of Columns: 5"),
        ("00:05Z", "00:05", "trace: row 2: expected time: dates with a zone, as before, found"),
        ("700", "7.5", "trace: row 2: expected input: an integer from 0 to 16777216, found 7.5"),
    ],
    "mooncake": [("1.5", "-1", "trace:2: expected timestamp: milliseconds from 0")],
    "native": [('["d", 2]', '["d", 0]', "trace:3: expected output: a length from 1")],
    "openai": [
        ("1763892005", "1763892005000", "trace: row 2: expected created: seconds from 0 to 439804"),
        ('s": 700', 's": -1', "trace: row 2: expected usage.prompt_tokens: an integer from 0"),
    ],
    "serving-benchmark": [
        ("[600, 1000]", '[600, "x"]', "trace: row 2: expected input_lens: an integer"),
        ("}\n", "}\n{}\n", "trace: [1]: expected one run in the file"),
    ],
    "sglang": [
        ('"prompt_tokens": 521', '"prompt_tokens": 5', "trace:4: expected obj.input_ids: the 5"),
        ('"e2e_latency": 0.5', '"e2e_latency": -1', "trace:4: expected e2e_latency: seconds"),
        ('"2026-06-30T09:15:50"', '"now"', "trace:4: expected timestamp: a date such as"),
        ('"out": {"meta_info"', '"out": {"info"', "trace:2: expected meta_info: an object"),
    ],
    "splitwise": [
        ("1.25", "-1", "trace: row 2: expected arrival_timestamp: a number"),
        (",7\n", ",x\n", "trace: row 2: expected token_size: an integer from 0"),
    ],
    "vllm": [
        ("519, 7]", "519, 7.5]", "trace:4: expected prompt_token_ids: a list of integers"),
        ("DEBUG 06-14 17:27:55", "17:27:55", "trace:4: expected a time such as INFO 06-14"),
        ("Request chatcmpl-b", "Request chatcmpl-a", "trace:4: expected request ids that differ"),
        ("prompt_token_ids: [", "prompt_token_ids: None [", "trace:2: expected prompt_token_ids"),
    ],
    "weka": [
        ('"in": 650', '"in": 6500', "trace: requests[1]: expected 101 hash_ids"),
        ('"t": 4.0', '"t": "x"', "trace: requests[1]: expected t: seconds"),
        ('"requests": [', '"requests": {}, "x": [', "trace:1: expected requests: a list"),
        ('"think_time": 2.5}]}', '"think_time": 2.5}]', "trace:2: expected JSON"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_one_line_with_their_place(name: str, tokenizer: str) -> None:
    for old, new, said in FAULTS[name]:
        content = sample(name)
        assert old in content
        with pytest.raises(CallerError) as error:
            text(content.replace(old, new), tokenizer=tokenizer)
        told = str(error.value)
        assert told.startswith(said), (old, told)
        assert "\n" not in told
        assert len(told) < 300


@pytest.mark.parametrize("name", registry.names(FORMATS))
def test_a_file_that_was_cut_ends_in_one_line_or_reads(name: str, tokenizer: str) -> None:
    content = sample(name).encode()
    for end in range(1, len(content), 7):
        try:
            parse(Lines("t", content[:end].splitlines(keepends=True)), name, tokenizer=tokenizer)
        except CallerError as error:
            lines = str(error).count("\n")
            assert not lines


# -- opening


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_packed_files_are_read_and_a_cut_one_is_named(pack: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    packed = pack(sample("mooncake").encode())
    path.write_bytes(packed + packed)  # frames and members follow one another
    with pytest.raises(CallerError, match=f"{path}:3: expected a timestamp of at least 1.5"):
        open_trace(str(path))
    path.write_bytes(packed)
    assert len(open_trace(str(path)).jobs) == 2
    path.write_bytes(packed[:-9])
    with pytest.raises(CallerError, match="found a truncated file; copy it again"):
        open_trace(str(path))
    path.write_bytes(packed[:12] + bytes(40))
    with pytest.raises(CallerError, match=r"trace.jsonl:1: expected"):
        open_trace(str(path))


def test_a_doubtful_format_is_not_guessed(monkeypatch: Patch) -> None:
    header = ",".join(
        [*sample("azure").splitlines()[0].split(","), "Timestamp,Request tokens,Response tokens"]
    )
    with pytest.raises(CallerError, match="can be azure or burstgpt; say which with --format"):
        text(header + "\n")


def test_folders_without_traces_are_named(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="found a directory without any; name a file"):
        open_trace(str(tmp_path))
    (tmp_path / "a.jsonl").write_text(sample("mooncake"))
    with pytest.raises(CallerError, match="found a directory of mooncake files; name a file"):
        open_trace(str(tmp_path))


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


@pytest.mark.parametrize(("name", "requests"), [("code", 8_819), ("conv", 19_366)])
def test_the_traces_of_azure(name: str, requests: int) -> None:
    trace = open_trace(str(beside("azure") / f"AzureLLMInferenceTrace_{name}.csv"))
    assert len(trace.jobs) == requests
    assert not trace.identity
    assert not trace.notes


# -- what commands make of lengths without identity


def test_lengths_drive_load_and_no_hit_rate(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(sample("azure"))
    assert main(["replay", str(path), "--mode", "hits"]) == 2
    told = capsys.readouterr().err
    assert "expected a trace that says which prompts begin alike, found lengths only" in told
    assert told.count("\n") == 1
    assert main(["replay", str(path), "--json", str(tmp_path / "out.json")]) == 0
    assert "azure has lengths only: each prompt counts as unique" in capsys.readouterr().err
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["whole"]["ceiling_tokens"] == 0
    assert document["latency_s"]["ttft"]["mean"] > 0
    assert main(["inspect", str(path), "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert "no hit rate can be given" in " ".join(printed.err.split())
    assert "LRU" not in printed.err
    inspection = json.loads(printed.out)
    assert (inspection["ceiling_hit_rate"], inspection["lru"]) == (None, [])
    assert inspection["input"]["total"] == 1600
