"""Files as users bring them: requests and conversations as text, blocks without times, and what a
server prints. What each must hold was counted by hand. Policies and schedulers of their own."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer import tiny_tokenizer
from traces.cli import main
from traces.formats import open_trace
from traces.formats.base import Measured, Trace
from traces.formats.reading import About
from traces.replaying.account import ceiling_of

from .rig import HEADER, Capsys, fails, mooncake, native, replayed, write

pytestmark = pytest.mark.usefixtures("here")


def lines(records: Sequence[Any], name: str = "file") -> str:
    Path(name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return name


def text(records: Sequence[Any]) -> Trace:
    return open_trace(lines(records), about=About(1, tiny_tokenizer(Path())))


def messages(*contents: str) -> list[dict[str, str]]:
    """The first one is the system's, then user and assistant in turn."""
    roles = ["system", *["user", "assistant"] * len(contents)]
    return [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]


def sizes(trace: Trace) -> list[tuple[int, int, int, int]]:
    """Of each request: tokens of prompt and answer, whom it follows, tokens that hit."""
    hits = ceiling_of(trace.paged(1), True).tolist()
    rows = zip(trace.jobs, hits, strict=True)
    return [(item.input_length, item.output_length, item.after, hit) for item, hit in rows]


def seconds(trace: Trace) -> list[float]:
    return [job.arrival_ns / 1e9 for job in trace.jobs]


def logged(second: int, *contents: str, **fields: Any) -> dict[str, Any]:
    time = f"2026-11-18T11:06:{second:02}.500Z"
    return {"timestamp": time, "model": "m", "messages": messages(*contents), **fields}


def test_each_line_of_a_log_of_requests_is_one_request_with_its_history() -> None:
    """Newest first; the last answer is within what a proxy logs, the others nowhere."""
    choices = [{"message": {"role": "assistant", "content": "e e"}}]
    trace = text(
        [
            logged(30, "a a", "b", "c c c", "d", response={"choices": choices}),
            logged(10, "a a", "e"),
            logged(0, "a a", "b"),
        ]
    )
    assert sizes(trace) == [(3, 1, -1, 0), (3, 1, -1, 2), (7, 2, -1, 3)]
    assert seconds(trace) == [0, 10, 30]
    assert [note[:38] for note in trace.notes] == ["2 requests have an output of one token"]


def test_whole_conversations_have_a_request_for_each_answer() -> None:
    talk = ("a", "b", "c c", "d", "e")
    for time in ("2026-11-18T11:06:40Z", 1_795_000_000_000):
        trace = text([{"timestamp": time, "conversation": messages(*talk), "language": "x"}])
        assert sizes(trace) == [(2, 2, -1, 0), (5, 1, 0, 3)]
        assert seconds(trace) == trace.jobs.sessions.tolist() == [0, 0]
    # a log with answers and their history counts each answer once
    trace = text([logged(0, *talk[:3]), logged(9, *talk)])
    assert sizes(trace) == [(2, 2, -1, 0), (5, 1, -1, 3)]
    assert seconds(trace) == [0, 9]
    assert [note[:38] for note in trace.notes] == ["1 answers that an earlier object has a"]


def test_blocks_without_times_have_a_curve_and_no_load(capsys: Capsys) -> None:
    records = [mooncake([1, 2]), mooncake([1, 3]), mooncake([1, 2])]
    for record in records:
        del record["timestamp"]
    path = lines(records)
    trace = open_trace(path)
    assert ceiling_of(trace.paged(512), True).tolist() == [0, 512, 1024]
    assert main(["convert", path, "-o", "out.jsonl"]) == 0
    assert "timestamp" not in Path("out.jsonl").read_text()
    assert open_trace("out.jsonl").jobs.timed is trace.jobs.timed is False
    for words in (["inspect"], ["curve"], ["replay", "--mode", "hits"]):
        assert main([words[0], path, *words[1:]]) == 0
    assert "50.000 %, in pages of 512" in capsys.readouterr().out
    message = "expected times of arrival, found none; give --request-rate with"
    assert message in fails(capsys, "replay", path)
    assert main(["replay", path, "--concurrency", "2"]) == 0


def test_the_output_of_a_server_says_which_flag_is_missing(capsys: Capsys) -> None:
    vllm = "INFO 11-20 15:00:29 [loggers.py:282] Engine 000: Avg prompt throughput: 798.5 tokens/s"
    sglang = "[2026-06-30 09:15:49] Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0"
    for line, message in ((vllm, "--enable-log"), (sglang, "--log-req")):
        Path("file").write_text(f"{line}\n" * 3)
        assert f"start it with {message}" in fails(capsys, "inspect", "file")


# -- logs

START = "2026-11-18T11:06:"
SPANS = [
    {
        "name": "chat",
        "start": f"{START}{second}.000Z",
        "attributes": {"gen.input": requested, "gen.output": 2, "session.id": session},
    }
    for second, requested, session in ((30, 12, "a"), (20, 7, "b"), (10, 9, "a"))
]
ROLES = "time=start,input=attributes.{0}gen.input{0},output=attributes.{0}gen.output{0},"


def test_spans_newest_first_are_sorted_and_names_may_have_dots(capsys: Capsys) -> None:
    """A span a line, or all in a document."""
    for quote in ("", '"'):
        columns = ROLES.format(quote) + f"session=attributes.{quote}session.id{quote}"
        trace = open_trace(lines(SPANS), about=About(columns=columns))
        assert sizes(trace) == [(9, 2, -1, 0), (7, 2, -1, 0), (12, 2, -1, 10)]
        assert seconds(trace) == [0, 10, 20]
    Path("file").write_text(json.dumps({"id": "x", "data": {"spans": SPANS}}, indent=2))
    columns = ROLES.format("") + "session=attributes.session.id"
    trace = open_trace("file", about=About(columns=columns, rows="data.spans"))
    assert sizes(trace) == [(9, 2, -1, 0), (7, 2, -1, 0), (12, 2, -1, 10)]
    message = fails(capsys, "inspect", "file")
    assert message.endswith(
        "such as --rows data.spans --columns time=start,input=attributes.gen.input,"
        "output=attributes.gen.output,session=attributes.session.id\n"
    )


def test_an_agents_transcript_counts_what_was_cached() -> None:
    def usage(new: int, cached: int) -> dict[str, Any]:
        return {"input_tokens": 1, "cache_creation_input_tokens": new, "output_tokens": 2} | {
            "cache_read_input_tokens": cached
        }

    def line(second: int, **fields: Any) -> dict[str, Any]:
        return {"type": "x", "sessionId": "s", "timestamp": f"{START}{second}Z", **fields}

    trace = open_trace(
        lines(
            [
                *(line(10, type=str(n // 2), message={"role": "user"}) for n in range(21)),
                line(11, message={"usage": usage(9, 0)}, requestId="a"),
                line(12, message={"usage": usage(9, 0)}, requestId="a"),
                line(20, message={"usage": usage(4, 10)}, requestId="b"),
            ]
        )
    )
    assert sizes(trace) == [(10, 2, -1, 0), (15, 2, -1, 11)]
    kinds = [f"2 rows of type {n} without t" for n in range(9)]
    beginnings = [*kinds, "3 rows without these colum", "1 rows repeat the id of a "]
    assert [note[:26] for note in trace.notes[:11]] == beginnings
    assert trace.measured == Measured(10)


def test_sessions_of_burstgpt_are_read_without_a_flag() -> None:
    Path("file").write_text(
        "Timestamp,Session ID,Model,Request tokens,Response tokens\n"
        "0.0,g0,GPT-4,9,2\n7.5,g1,GPT-4,8,2\n9.0,g0,GPT-4,14,2\n"
    )
    assert sizes(open_trace("file")) == [(9, 2, -1, 0), (8, 2, -1, 0), (14, 2, -1, 10)]


@pytest.mark.parametrize(("size", "hit"), [(1, 4), (4, 4), (5, 0)])
def test_rows_with_ids_of_tokens_say_what_prompts_share(size: int, hit: int) -> None:
    """The last token of an answer is not computed, so a block that ends with it is not cached."""
    rows = [{"at_ns": 5, "in": [1, 2, 3], "out": [4, 5]}, {"at_ns": 9, "in": [1, 2, 3, 4, 5, 6]}]
    rows[1]["out"] = [7]
    columns = "time=at_ns:ns,input_ids=in,output_ids=out"
    trace = open_trace(lines(rows), about=About(size, columns=columns))
    assert ceiling_of(trace.paged(size), True).tolist() == [0, hit]
    words = ["--columns", columns, "--page-size", str(size), "--json", "found"]
    assert main(["inspect", "file", *words]) == 0
    assert json.loads(Path("found").read_text())["ceiling_hit_tokens"] == hit


@pytest.mark.parametrize(
    "expression",
    [
        *("(SELECT content FROM read_text('secret'))", "x FROM read_text('secret')"),
        *("x; SELECT 2", "getenv('HOME')", "sum(x", "*", "x::INTEGER"),
    ],
)
def test_an_expression_sees_the_file_alone_and_ends_in_one_line(
    expression: str, capsys: Capsys
) -> None:
    Path("secret").write_text("7")
    path = lines([{"t": 1_795_000_000, "x": "secret'; DROP TABLE t", "y": 3}])
    message = fails(capsys, "inspect", path, "--columns", f"time=t,input={expression},output=y")
    assert len(message) < 600


MINE = '''
from hicache.core.eviction_policies import Term, before
from sim.schedulers import Scheduler

class Mine:
    """What few requests used goes first, the oldest of it before all."""

    name = "mine"
    whole_path = False
    order = (Term("hits", 3), Term("inserted"))

    def rank(self, node, component):
        return before(min(node.hits, 3), node.inserted)

class Lru(Mine):
    name = "lru"

class Third:
    name, threshold, on_evict, contiguous = "third", 3, False, True

class Shortest(Scheduler):
    """The shortest prompt first."""

    def best(self, reusable):
        return min(self.queue, key=lambda one: one.length)

class Late(Mine):
    name, calls = "late", 0

    def rank(self, node, component):
        if node.hits == 4:
            raise RuntimeError("no rank")
        return super().rank(node, component)

'''
REQUESTS = [
    native((f"s{index % 5}", 64), (f"q{index}", 200), output=(f"a{index}", 20), timestamp=index)
    for index in range(40)
]
SMALL = ["--page-size", "16", "--device-tokens", "1600", "--host-ratio", "1", "--check", "every"]


@pytest.fixture
def mine(here: None) -> str:
    """A file of a user's own, in the folder where the command runs; forgotten afterwards."""
    Path("mine.py").write_text(MINE)
    write(Path("trace.jsonl"), HEADER, *REQUESTS)
    return "./mine.py"


def results(*options: str) -> dict[str, Any]:
    return replayed(Path(), "trace.jsonl", *SMALL, *options)


def test_a_policy_from_a_file_is_checked_like_ours(mine: str) -> None:
    result = results("--eviction", f"{mine}:Mine", "--write-policy", f"{mine}:Third")
    assert result["config"]["eviction_policy"] == "mine"
    assert result["config"]["write_policy"] == "third"
    assert result["checks"]["violations"] == 0
    assert result["checks"]["not_judged"] == ""
    assert result["checks"]["specified"] == result["checks"]["operations"] > 0
    assert result["digest"] != results()["digest"]
    result = results("--scheduler", f"{mine}:Shortest", "--engine", "vllm?max_running=1")
    assert result["config"]["scheduler"] == "shortest"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--eviction {}:Nothing", "expected Nothing in it, found none"),
        ("--eviction {}:Lru", "expected a name in lower case that none of fifo, lfu"),
        ("--eviction {}", "for your own: --eviction path.py:Name"),
        ("--write-policy {}:Mine", "expected threshold"),
        ("--scheduler {}:Mine", "expected no exception, found TypeError"),
    ],
)
def test_an_unusable_file_is_refused_in_one_line(
    mine: str, option: str, words: str, capsys: Capsys
) -> None:
    assert words in fails(capsys, "replay", "trace.jsonl", *option.format(mine).split())


def test_an_error_of_a_users_file_during_a_run_names_its_line(mine: str, capsys: Capsys) -> None:
    message = fails(capsys, "replay", "trace.jsonl", *SMALL, "--eviction", f"{mine}:Late")
    assert "mine.py, line" in message
    assert "Late.rank: expected no exception, found RuntimeError: no rank" in message
