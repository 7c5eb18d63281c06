"""Logs of the user's own: the same in every kind of file and unit, as a second reading has it, what
is assumed and its bounds, every refusal in one line, and files that nobody vouches for."""

from __future__ import annotations

import gzip
import json
import random
import re
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces.cli import main
from traces.formats import open_trace
from traces.formats.base import LogOptions, Trace
from traces.formats.reading import MAX_LINE_BYTES
from traces.replaying.account import ceiling_of

from .formats_drawn import SAMPLES
from .test_bad_input import fails

COLUMNS = "time=at,input=asked,output=told,session=chat"
BEGIN = datetime(2026, 11, 23, 10, tzinfo=UTC)
DOCS = Path(__file__).resolve().parents[2] / "docs" / "formats.md"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


duckdb = pytest.importorskip("duckdb", reason="needs the extra logs", exc_type=ImportError)


def write_parquet(rows: Sequence[dict[str, Any]], select: str = "*") -> None:
    Path("rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"SELECT {select} FROM read_json('rows', format = 'newline_delimited')"
    duckdb.sql(f"SET TimeZone = 'Europe/Berlin'; COPY ({text}) TO 'log' (FORMAT parquet)")


# -- a second reading

DRAWN = settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Asked(NamedTuple):
    """A row. ms: since the start. chat: None for a session of its own."""

    ms: int
    prompt: int
    answer: int
    chat: str | None


@st.composite
def logs(draw: st.DrawFn) -> list[Asked]:
    """Sessions whose prompts grow, stay, shrink and come again, in any order of the file that keeps
    the order of each session."""
    sizes = st.integers(1, 12)
    pending: list[list[Asked]] = []
    for name in draw(st.lists(st.sampled_from([*"abcd", None]), min_size=1, max_size=5)):
        if name is not None and any(one[0].chat == name for one in pending):
            continue
        ms, prompt, rows = draw(st.integers(0, 50)), 0, []
        for _ in range(draw(st.integers(1, 5)) if name else 1):
            prompt = max(1, prompt + draw(st.integers(-4, 14)))
            rows.append(Asked(ms, prompt, draw(sizes), name))
            ms += draw(st.integers(0, 40))
        pending.append(rows)
    found = []
    while any(pending):
        rows = draw(st.sampled_from([one for one in pending if one]))
        found.append(rows.pop(0))
    return found


def tokens_of(rows: Sequence[Asked], options: LogOptions) -> list[tuple[list[Any], list[Any]]]:
    """The tokens of each prompt and answer, in the order of the rows, which is that of time."""
    prefix = [("prefix", at) for at in range(options.shared_prefix or 0)]
    chats: dict[object, tuple[list[Any], list[Any]]] = {}
    found = []
    for place, row in enumerate(rows):
        chat = place if row.chat is None else row.chat
        start = prefix[: row.prompt]
        prompt, answer = chats.get(chat, ([], []))
        if prompt and row.prompt >= len(prompt):
            start = prompt + answer if row.prompt >= len(prompt) + len(answer) else prompt
        whole = start + [("asked", place, at) for at in range(row.prompt - len(start))]
        chats[chat] = whole, [("told", place, at) for at in range(row.answer)]
        found.append(chats[chat])
    return found


def numbered(sequences: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Each place as the number of what is up to it, in the order of the first appearance."""
    seen: dict[Any, int] = {}
    found = []
    for sequence in sequences:
        before: Any = None
        numbers = []
        for one in sequence:
            before = seen.setdefault((before, one), len(seen))
            numbers.append(before)
        found.append(numbers)
    return found


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


def csv_file(records: Sequence[Sequence[Any]], delimiter: str = ",") -> None:
    def cell(value: Any) -> str:
        text = "" if value is None else str(value)
        return '"' + text.replace('"', '""') + '"' if re.search(r'[",;\n]', text) else text

    lines = [delimiter.join(map(cell, record)) for record in [NAMES, *records]]
    Path("log").write_text("\n".join(lines) + "\n")


def jsonl_file(records: Sequence[Sequence[Any]]) -> None:
    lines = [json.dumps(dict(zip(NAMES, record, strict=True))) for record in records]
    Path("log").write_text("\n".join(lines) + "\n")


def json_file(records: Sequence[Sequence[Any]]) -> None:
    rows = [dict(zip(NAMES, record, strict=True)) for record in records]
    Path("log").write_text(json.dumps(rows, indent=1))


def parquet_file(records: Sequence[Sequence[Any]]) -> None:
    write_parquet([dict(zip(NAMES, record, strict=True)) for record in records])


WRITERS: dict[str, Callable[[Sequence[Sequence[Any]]], None]] = {
    "csv": csv_file,
    "semicolons": lambda records: csv_file(records, ";"),
    "jsonl": jsonl_file,
    "json": json_file,
    "parquet": parquet_file,
}
PREFIXES = st.sampled_from([None, 0, 3, 9])


@pytest.mark.parametrize("kind", WRITERS)
@DRAWN
@given(rows=logs(), prefix=PREFIXES, unit=st.sampled_from([*UNITS]))
def test_a_log_is_read_as_a_second_reading_has_it(
    kind: str, rows: list[Asked], prefix: int | None, unit: str
) -> None:
    write, given_unit = UNITS[unit]
    WRITERS[kind]([[write(r.ms), r.prompt, r.answer, r.chat, MORE] for r in rows])
    columns = COLUMNS.replace("at,", f"at{given_unit},", 1)
    options = LogOptions(columns, prefix)
    trace = open_trace("log", log=options)
    order = sorted(range(len(rows)), key=lambda place: rows[place].ms)
    ordered = [rows[place] for place in order]
    assert [job.arrival_ns for job in trace.jobs] == [
        (row.ms - ordered[0].ms) * 1_000_000 for row in ordered
    ]
    assert [(job.input_length, job.output_length) for job in trace.jobs] == [
        (row.prompt, row.answer) for row in ordered
    ]
    assert list(trace.line_numbers) == [place + 1 for place in order]
    alike(trace, ordered, options)
    words = ["--columns", columns] + ["--shared-prefix", str(prefix)] * (prefix is not None)
    assert main(["convert", "log", *words, "-o", "made.jsonl"]) == 0
    made = open_trace("made.jsonl")
    assert list(made.jobs) == list(trace.jobs)
    alike(made, ordered, options)


def alike(trace: Trace, rows: Sequence[Asked], options: LogOptions) -> None:
    """Asserts that the trace has the tokens of the second reading."""
    seen: dict[int, int] = {}
    chains = [trace.paged(1).chain(job).tolist() for job in trace.jobs]
    found = [[seen.setdefault(one, len(seen)) for one in chain] for chain in chains]
    cached = [(prompt + answer)[:-1] for prompt, answer in tokens_of(rows, options)]
    assert found == numbered(cached)


def test_without_sessions_and_words_there_are_lengths_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    csv_file([[iso(0), 9, 1, "a", ""], [iso(5), 9, 1, "a", ""]])
    given = ["--columns", COLUMNS.partition(",session")[0]]
    assert not open_trace("log", log=LogOptions(given[1])).identity
    assert "found lengths only (log)" in fails(capsys, "curve", "log", *given)
    assert main(["convert", "log", *given, "-o", "made.jsonl"]) == 0
    assert not open_trace("made.jsonl").identity
    said = LogOptions(given[1], 4)
    assert ceiling_of(open_trace("log", log=said).paged(1), True).tolist() == [0, 4]


def test_nested_columns_and_columns_with_the_names_of_roles() -> None:
    rows = [
        {"time": iso(1000 * second), "usage": {"in": 9, "deep": {"out": 3}}} for second in (1, 0)
    ]
    said = LogOptions("time=time,input=usage.in,output=usage.deep.out", 4)
    found = []
    for kind in ("TIMESTAMPTZ", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"):
        write_parquet(rows, f"time::{kind} AS time, usage")
        found.append([*open_trace("log", log=said).jobs])
    texts = [json.dumps(row) for row in rows]
    Path("log").write_text("\n".join(texts))
    found.append([*open_trace("log", log=said).jobs])
    assert all(one == found[0] for one in found)
    assert [job.arrival_ns for job in found[0]] == [0, 1_000_000_000]
    Path("log").write_text("input,time,output\n5,2026-11-23 10:00:00,2\n")
    assert open_trace("log").format == "log"


# -- refusals

GOOD = "at,asked,told,chat\n2026-11-23T10:00:00Z,9,2,a\n2026-11-23T10:00:05Z,19,2,a\n"
ROWS = [
    # what to replace in GOOD, with what, what is said
    ("asked", "ask", "log:1: expected a column asked, found the columns at, ask"),
    ("asked", "askd", "did you mean askd?; name those of the log, such as --columns"),
    ("2026-11-23T10:00:05Z", "", "log: row 2: expected at: a date, or a number since 1970"),
    ("2026-11-23T10:00:00Z", "1969-11-23T10:00:00Z", "log: row 1: expected at: a date"),
    ("2026-11-23T10:00:00Z", "12.5", "give the unit of the numbers, such as time=at:s"),
    ("2026-11-23T10:00:00Z", "1e308", "log: row 1: expected at: a date, or a number sinc"),
    ("19", "-1", "log: row 2: expected asked: an integer from 0 to 16777216, found -1"),
    ("19", "1.5", "log: row 2: expected asked: an integer from 0 to 16777216, found 1"),
    ("19", "x", "log: row 2: expected asked: an integer from 0 to 16777216, found x"),
    ("19,2", "16777216,1", "log: row 2: expected at most 16777216 tokens in a request"),
    ("19,2,a", f"19,2,{'a' * 300}", "log: row 2: expected chat: text of at most 256"),
    ("19,2,", "19,", "log:3: expected a line of CSV, found Expected Number of Columns"),
    ("19", '"19', "log:3: expected a line of CSV, found Value with unterminated quo"),
    (GOOD, "", "log:1: expected a trace, found an empty file"),
    (GOOD, GOOD.split("\n")[0], "log:1: expected a request, found none; give a log"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), ROWS)
def test_a_fault_is_one_line_with_its_row(
    old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in GOOD
    Path("log").write_text(GOOD.replace(old, new))
    told = fails(capsys, "inspect", "log", "--columns", COLUMNS)
    assert said in told
    assert len(told) < 400


WORDS = {
    "--columns time=a": "expected time, input, output, found no input",
    "--columns time=a,input=b,outptu=c": "found 'outptu=c'; did you mean output?",
    "--columns time=a,input=b,output=": "each once, with =COLUMN, found 'output='",
    "--columns time=a,input=b,output=c,time=d": "each once, with =COLUMN, found 'time=d'",
    f"--columns {COLUMNS} --format azure": "--columns: expected a log, found --format azure",
    f"--columns {COLUMNS} --block-size 16": "--block-size: expected a trace with ids of blocks",
    f"--columns {COLUMNS.replace('at,', 'at:ms,', 1)}": "expected at: a number of ms, found",
    "": "expected the columns of a known format, found the columns at, asked, told, chat; name",
}


@pytest.mark.parametrize("words", WORDS)
def test_options_that_do_not_fit_are_refused(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("log").write_text(GOOD)
    assert WORDS[words] in fails(capsys, "inspect", "log", *words.split())


# -- files that nobody vouches for

HEAD = GOOD.split("\n")[0].encode()
MANY_FIELDS = b", ".join(b'"f%d": 1' % number for number in range(20_000))
HOSTILE = [
    (b"x" * (MAX_LINE_BYTES + 2), "expected a line of CSV, found Maximum line size"),
    (HEAD + b'\n"' + b"xxx\n" * (MAX_LINE_BYTES // 3), "expected a line of CSV"),
    (b"," * 3_000_000, "expected at most 10,000 columns, found more"),
    (b"{" + MANY_FIELDS + b"}\n", "expected a column at, found the columns"),
    (b'{"at": ' * 100_000 + b"1" + b"}" * 100_000, "expected JSON, found JSON exceeds"),
    (b"[" * 100_000, "expected JSON, found Malformed"),
    (b'{"at": {"a": [1]}, "asked": 9, "told": 9}\n', "expected at: a date"),
    (b'{"at": 1763892005, "asked": [9], "told": 9}\n', "found [9]; correct"),
    (b'{"at": 1763892005, "asked": true, "told": 9}\n', "expected asked: an integer"),
    (b'{"at": 1, "asked": ' + b"9" * 4000 + b', "told": 9}', "found inf"),
    (b'{"at": 1763892005, "asked": NaN, "told": 9}\n', "found nan; correct"),
    (HEAD + b"\r1", "expected a line of CSV"),
    (bytes(100), "expected a column at, found the columns"),
    (HEAD + b"\n\xff\n", "log:2: expected a line of CSV, found Invalid unicode"),
]


@pytest.mark.parametrize(("content", "said"), HOSTILE, ids=lambda one: str(one[-40:]))
def test_hostile_files_end_in_one_line(
    content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("log").write_bytes(content)
    columns = COLUMNS.partition(",session")[0] if b'"asked"' in content else COLUMNS
    told = fails(capsys, "inspect", "log", "--columns", columns)
    assert said in told
    assert len(told) < 500


def test_conversations_without_end_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    csv_file([[iso(n), 1 + 2 * n, 1, "a", ""] for n in range(2100)])
    told = fails(capsys, "inspect", "log", "--columns", COLUMNS)
    assert "log: row 2049: expected conversations of at most 2,048 turns" in told


def test_hostile_parquet_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"at": 1763892005 + n, "asked": 9, "told": 2, "chat": "a"} for n in range(50)]
    write_parquet(rows)
    good = Path("log").read_bytes()
    draw = random.Random(5)
    cases = [good[:size] for size in (4, len(good) // 2)] + [
        b"PAR1" + draw.randbytes(200) + b"PAR1"
    ]
    for _ in range(20):
        bad = bytearray(good)
        bad[draw.randrange(len(bad))] = draw.randrange(256)
        cases.append(bytes(bad))
    for content in cases:
        Path("log").write_bytes(content)
        code = main(["inspect", "log", "--columns", COLUMNS])
        told = capsys.readouterr().err
        assert code == (2 if told else 0)
        assert told.count("\n") == (code == 2)
        assert len(told) < 400
    write_parquet(rows)
    assert "expected a column ask, found the columns at, asked" in fails(
        capsys, "inspect", "log", "--columns", "time=at,input=ask,output=told"
    )
    packed = gzip.compress(good)
    Path("log").write_bytes(packed)
    assert len(open_trace("log", log=LogOptions(COLUMNS)).jobs) == 50
    Path("log").write_bytes(packed[:-9])
    assert "truncated file" in fails(capsys, "inspect", "log", "--columns", COLUMNS)


# -- logs by name


def test_an_sglang_log_without_ids_has_lengths_only() -> None:
    content = SAMPLES["sglang"]
    Path("log").write_text(re.sub(r'"input_ids": \[[^]]*\]', "", content))
    trace = open_trace("log")
    assert not trace.identity
    assert [job.input_length for job in trace.jobs] == [520, 521]


# -- the page


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = DOCS.read_text()
    [log] = re.findall(r"```csv\n(.*?)```", page, re.DOTALL)
    [(command, shown)] = re.findall(r"```console\n\$ (.*?)\n(.*?)```", page, re.DOTALL)
    Path("log.csv").write_text(log)
    assert main(shlex.split(command)[1:]) == 0
    said = capsys.readouterr()
    assert said.out + said.err == shown
    assert main(["inspect", "trace.jsonl"]) == 0
