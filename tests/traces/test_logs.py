"""Logs of the user's own: the same in every kind of file and unit, as a second reading has it, what
is assumed and its bounds, every refusal in one line, and files that nobody vouches for."""

import csv
import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces.cli import main
from traces.formats import open_trace, tables
from traces.formats.base import Trace
from traces.formats.reading import MAX_LINE_BYTES, About

from .rig import fails

COLUMNS = "time=at,input=asked,output=told,session=chat"
BEGIN = datetime(2026, 11, 23, 10, tzinfo=UTC)


pytestmark = pytest.mark.usefixtures("here")


duckdb = pytest.importorskip("duckdb", reason="needs the extra logs", exc_type=ImportError)


def write_parquet(rows: Sequence[dict[str, Any]], select: str = "*") -> None:
    Path("rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"SELECT {select} FROM read_json('rows', format = 'newline_delimited')"
    duckdb.sql(f"SET TimeZone = 'Europe/Berlin'; COPY ({text}) TO 'log' (FORMAT parquet)")


# -- a second reading

DRAWN = settings(
    deadline=None, max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Purchase(NamedTuple):
    """A row. ms: since the start. chat: None for a session of its own."""

    ms: int
    prompt: int
    answer: int
    chat: str | None


@st.composite
def logs(draw: st.DrawFn) -> list[Purchase]:
    """Sessions whose prompts grow, stay, shrink and come again, in any order of the file that keeps
    the order of each session."""
    sizes = st.integers(1, 12)
    pending: list[list[Purchase]] = []
    for name in draw(st.lists(st.sampled_from([*"abcd", None]), min_size=1, max_size=5)):
        if name is not None and any(item[0].chat == name for item in pending):
            continue
        ms, prompt, rows = draw(st.integers(0, 50)), 0, []
        for _ in range(draw(st.integers(1, 5)) if name else 1):
            prompt = max(1, prompt + draw(st.integers(-4, 14)))
            rows.append(Purchase(ms, prompt, draw(sizes), name))
            ms += draw(st.integers(0, 40))
        pending.append(rows)
    result = []
    while any(pending):
        rows = draw(st.sampled_from([item for item in pending if item]))
        result.append(rows.pop(0))
    return result


def tokens_of(rows: Sequence[Purchase]) -> list[tuple[list[Any], list[Any]]]:
    """The tokens of each prompt and answer, in the order of the rows, which is that of time."""
    chats: dict[object, tuple[list[Any], list[Any]]] = {}
    result = []
    for place, row in enumerate(rows):
        chat = place if row.chat is None else row.chat
        start: list[Any] = []
        prompt, answer = chats.get(chat, ([], []))
        if prompt and row.prompt >= len(prompt):
            start = prompt + answer if row.prompt >= len(prompt) + len(answer) else prompt
        full = start + [("asked", place, at) for at in range(row.prompt - len(start))]
        chats[chat] = full, [("told", place, at) for at in range(row.answer)]
        result.append(chats[chat])
    return result


def numbered(sequences: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Each place as the number of what is up to it, in the order of the first appearance."""
    seen: dict[Any, int] = {}
    result = []
    for sequence in sequences:
        before: Any = None
        numbers = []
        for item in sequence:
            before = seen.setdefault((before, item), len(seen))
            numbers.append(before)
        result.append(numbers)
    return result


def iso(ms: int) -> str:
    return (BEGIN + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


SINCE_1970_MS = int(BEGIN.timestamp() * 1000)
UNITS: dict[str, tuple[Callable[[int], Any], str]] = {
    "s": (lambda ms: (SINCE_1970_MS + ms) / 1000, ""),
    "ms": (lambda ms: SINCE_1970_MS + ms, ""),
    "us": (lambda ms: (SINCE_1970_MS + ms) * 1000, ""),
    "ns": (lambda ms: (SINCE_1970_MS + ms) * 1_000_000, ""),
    "relative s": (lambda ms: ms / 1000, ":s"),
    "relative ms": (lambda ms: ms, ":ms"),
    "zone": (iso, ""),
    "Z": (lambda ms: iso(ms).replace("+00:00", "Z"), ""),
    "no zone": (lambda ms: iso(ms).removesuffix("+00:00").replace("T", " "), ""),
}
NAMES = ["at", "asked", "told", "chat", "text"]
MORE = 'one, "two"\nthree; four'  # a column that is not read


def write_log(kind: str, records: Sequence[Sequence[Any]]) -> None:
    """kind: of the file, or what is between its columns."""
    rows = [dict(zip(NAMES, record, strict=True)) for record in records]
    if kind == "parquet":
        write_parquet(rows)
    elif kind == "json":
        Path("log").write_text(json.dumps(rows, indent=1))
    elif kind == "jsonl":
        Path("log").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with open("log", "w", newline="") as file:
            csv.writer(file, delimiter=kind, lineterminator="\n").writerows([NAMES, *records])


@pytest.mark.parametrize("kind", [",", ";", "jsonl", "json", "parquet"])
@DRAWN
@given(rows=logs(), unit=st.sampled_from([*UNITS]))
def test_a_log_is_read_as_a_second_reading_has_it(
    kind: str, rows: list[Purchase], unit: str
) -> None:
    write, given_unit = UNITS[unit]
    write_log(kind, [[write(r.ms), r.prompt, r.answer, r.chat, MORE] for r in rows])
    columns = COLUMNS.replace("at,", f"at{given_unit},", 1)
    trace = open_trace("log", about=About(columns=columns))
    order = sorted(range(len(rows)), key=lambda place: rows[place].ms)
    ordered = [rows[place] for place in order]
    assert [job.arrival_ns for job in trace.jobs] == [
        (row.ms - ordered[0].ms) * 1_000_000 for row in ordered
    ]
    assert [(job.input_length, job.output_length) for job in trace.jobs] == [
        (row.prompt, row.answer) for row in ordered
    ]
    assert list(trace.line_numbers) == [place + 1 for place in order]
    alike(trace, ordered)
    words = ["--columns", columns]
    assert main(["convert", "log", *words, "-o", "made.jsonl"]) == 0
    made = open_trace("made.jsonl")
    assert list(made.jobs) == list(trace.jobs)
    alike(made, ordered)


def alike(trace: Trace, rows: Sequence[Purchase]) -> None:
    """Asserts that the trace has the tokens of the second reading."""
    seen: dict[int, int] = {}
    chains = [trace.paged(1).chain(job).tolist() for job in trace.jobs]
    result = [[seen.setdefault(item, len(seen)) for item in chain] for chain in chains]
    cached = [(prompt + answer)[:-1] for prompt, answer in tokens_of(rows)]
    assert result == numbered(cached)


def test_without_sessions_and_words_there_are_lengths_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_log(",", [[iso(0), 9, 1, "a", ""], [iso(5), 9, 1, "a", ""]])
    value = ["--columns", COLUMNS.partition(",session")[0]]
    assert not open_trace("log", about=About(columns=value[1])).identity
    assert "found lengths only (log)" in fails(capsys, "curve", "log", *value)
    assert main(["convert", "log", *value, "-o", "made.jsonl"]) == 0
    assert not open_trace("made.jsonl").identity


def test_nested_columns_and_columns_with_the_names_of_roles() -> None:
    rows = [
        {"time": iso(1000 * second), "usage": {"in": 9, "deep": {"out": 3}}} for second in (1, 0)
    ]
    columns = "time=time,input=usage.in,output=usage.deep.out"
    result = []
    for kind in ("TIMESTAMPTZ", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"):
        write_parquet(rows, f"time::{kind} AS time, usage")
        result.append([*open_trace("log", about=About(columns=columns)).jobs])
    texts = [json.dumps(row) for row in rows]
    Path("log").write_text("\n".join(texts))
    result.append([*open_trace("log", about=About(columns=columns)).jobs])
    assert all(item == result[0] for item in result)
    assert [job.arrival_ns for job in result[0]] == [0, 1_000_000_000]
    Path("log").write_text("input,time,output\n5,2026-11-23 10:00:00,2\n")
    assert open_trace("log").format == "log"


# -- refusals, and files that nobody vouches for

HEAD = b"at,asked,told,chat\n"
GOOD = HEAD + b"2026-11-23T10:00:00Z,9,2,a\n2026-11-23T10:00:05Z,19,2,a\n"
MANY_FIELDS = b", ".join(b'"f%d": 1' % number for number in range(20_000))
ROWS = [
    # what to replace in GOOD, with what, what is said
    (b"asked", b"askd", "log:1: expected a column asked, found the columns at, askd"),
    (b"2026-11-23T10:00:05Z", b"", "log: row 2: expected at: a date, or a number since 1970"),
    (b"2026-11-23T10:00:00Z", b"1969-11-23T10:00:00Z", "log: row 1: expected at: a date"),
    (b"2026-11-23T10:00:00Z", b"12.5", "give the unit of the numbers, such as time=at:s"),
    (b"19", b"-1", "log: row 2: expected asked: an integer from 0 to 16777216, found -1"),
    (b"19,2", b"16777216,1", "log: row 2: expected at most 16777216 tokens in a request"),
    (b"19,2,a", b"19,2," + b"a" * 300, "log: row 2: expected chat: text of at most 256"),
    (b"19,2,", b"19,", "log:3: expected a line of CSV, found Expected Number of Columns"),
    (GOOD, b"", "log:1: expected a trace, found an empty file"),
    (GOOD, HEAD + b'"' + b"xxx\n" * (MAX_LINE_BYTES // 3), "expected a line of CSV"),
    (GOOD, b"," * 3_000_000, "expected at most 10,000 columns, found more"),
    (GOOD, b"{" + MANY_FIELDS + b"}\n", "expected a column at, found the columns"),
    (GOOD, b'{"at": ' * 100_000 + b"1" + b"}" * 100_000, "expected JSON, found JSON exceeds"),
    (GOOD, b'{"at": 1763892005, "asked": [9], "told": 9, "chat": "a"}\n', "found [9]; correct"),
]  # fmt: skip
WORDS = {
    "--columns time=a,input=b,outptu=c": "found 'outptu=c'; did you mean output?",
    f"--columns {COLUMNS} --format azure": "--columns: expected a log, found --format azure",
    f"--columns {COLUMNS} --block-size 16": "--block-size: expected a trace with ids of blocks",
    f"--columns {COLUMNS.replace('at,', 'at:ms,', 1)}": "expected at: a number of ms, found",
    "": "expected the columns of a known format, found the columns at, asked, told, chat; name",
}

HINT = "name those of the log, such as --columns"
PROPOSED = {  # columns that there are, or none
    b"when;input;output;user": "time=when,input=input,output=output",
    b"when\tin tokens\tout tokens": "'time=when,input=in tokens,output=out tokens'",
    b"when,in tokens,told": "time=COLUMN,input=COLUMN,output=COLUMN",
}


@pytest.mark.parametrize(
    ("content", "words", "text"),
    [(GOOD.replace(old, new), f"--columns {COLUMNS}", message) for old, new, message in ROWS]
    + [(GOOD, words, word) for words, word in WORDS.items()]
    + [(head + b"\n1,2,3\n", "", f"{HINT} {message}\n") for head, message in PROPOSED.items()],
    ids=[message for _, _, message in ROWS] + [*WORDS] + [*PROPOSED.values()],
)
def test_faults_of_files_and_options_are_one_line(
    content: bytes, words: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("log").write_bytes(content)
    report = fails(capsys, "inspect", "log", *words.split())
    assert text in report
    assert len(report) < 500


def test_conversations_without_end_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "_MOST_SEGMENTS", 64)
    write_log(",", [[iso(n), 1 + 2 * n, 1, "a", ""] for n in range(40)])
    message = fails(capsys, "inspect", "log", "--columns", COLUMNS)
    assert "log: row 33: expected conversations of at most 32 turns" in message


def test_hostile_parquet_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_parquet([{"at": 1763892005 + n, "asked": 9, "told": 2, "chat": "a"} for n in range(50)])
    good = Path("log").read_bytes()
    draw = random.Random(5)
    cases = [good[:4], good[: len(good) // 2], b"PAR1" + draw.randbytes(200) + b"PAR1"]
    for _ in range(20):
        bad = bytearray(good)
        bad[draw.randrange(len(bad))] = draw.randrange(256)
        cases.append(bytes(bad))
    for content in cases:
        Path("log").write_bytes(content)
        code = main(["inspect", "log", "--columns", COLUMNS])
        err = capsys.readouterr().err
        assert (code, err.count("\n")) in ((0, 0), (2, 1))
        assert len(err) < 400
