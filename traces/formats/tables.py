"""Logs in columns, CSV, JSON or Parquet, a row a request, read by DuckDB (extra `logs`): the known
ones of logs.toml, and a user's own.

A column is a name or an expression of DuckDB's SQL. The engine sees this one file, no other, and no
extension, and has bounded memory; nothing of the file becomes a part of a statement but names, in
quotes. Rows are put in the order of their times, since services write a row when a request ends.
"""

from __future__ import annotations

import re
import tomllib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from shlex import quote
from statistics import median_low
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np

from hicache.core.errors import CallerError, closest

from ..results.record import Measured
from ..terminal.options import library
from . import reading
from .base import MAX_REQUEST_TOKENS, NS_PER_S
from .pages import Segment
from .reading import WITHIN, About, Format, Head, Lines, Row, shorten

NEEDED = ("time", "input", "output")
OPTIONAL = ("session", "cached", "ttft", "id")
ROLES = (*NEEDED, *OPTIONAL, "input_ids", "output_ids")
_BLOCKS = ("blocks", "block_size")  # of known logs only
_DATA = tomllib.loads(Path(__file__).with_name("logs.toml").read_text())
_NOTHING: tuple[list[Segment], int, int] = [], 0, 0  # known of a session
_MOST_SEGMENTS = 4096  # of a prompt
_EMPTY = "requests without a prompt or an answer were left out; they failed."
_OTHERS = "rows {}without these columns were passed over."
_MOST_TYPES = 9  # that are counted apart
_REPEATED = "rows repeat the id of a row before; they are one request."
_AT_ONCE = "requests arrive at once: the file does not say when they started."
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|\([^()]*(?:\([^()]*\)[^()]*)*\)|[^,])+""")


class Column(NamedTuple):
    """An expression over columns. unit: of its times, one of UNITS; empty if the values say it."""

    name: str
    unit: str = ""


def parse_columns(text: str, needed: Sequence[str] = NEEDED) -> Mapping[str, Column]:
    """The columns of `time=ts:ms,input=a + b,...` by role. A comma in parentheses or quotes belongs
    to its expression. Raises ValueError that says what was expected and found."""
    result: dict[str, Column] = {}
    for part in _PART.findall(text):
        role, _, name = (piece.strip() for piece in part.partition("="))
        if role not in (*ROLES, *_BLOCKS) or not name or role in result:
            hint = closest(role, ROLES) if role not in ROLES else ""
            raise ValueError(
                f"expected {', '.join(ROLES)}, each once, with =COLUMN, found {part[:40]!a}{hint}"
            )
        bare, _, unit = name.rpartition(":")
        is_unit = role in ("time", "ttft") and bare and unit in reading.UNITS
        if role == "ttft" and not is_unit:
            raise ValueError(f"expected a unit, such as ttft={name[:40]}:s, found none")
        result[role] = Column(bare, unit) if is_unit else Column(name)
    lacking = [role for role in needed if not {role, f"{role}_ids"} & {*result}]
    if lacking:
        raise ValueError(f"expected {', '.join(NEEDED)}, found no {lacking[0]}")
    return result


# -- rows of a file

PARQUET = b"PAR1"
_MOST_SPOOLED = 64 << 30  # bytes, of a log that is packed or comes on standard input
_LISTED, _COMPARED = 12, 500
_SETTINGS = """SET threads = 1; SET memory_limit = '2GiB'; SET temp_directory = '';
    SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;
    SET TimeZone = 'UTC'; SET python_enable_replacements = false;
    SET enable_external_access = false; SET lock_configuration = true"""
_JSON = f"maximum_object_size = {64 << 20}, compression = 'none'"
_TYPED = "sample_size = -1, maximum_depth = 8, map_inference_threshold = 1000"
_CSV = f"""header = true, quote = '"', escape = '"', compression = 'none',
    max_line_size = {reading.MAX_LINE_BYTES}"""
_CSV_TYPED = "sample_size = -1, auto_type_candidates = ['BIGINT', 'DOUBLE', 'VARCHAR']"
_KINDS = {"csv": "a line of CSV", "json": "JSON", "parquet": "Parquet"}
_PLAIN = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_NOISE = r"(?m)^.*(Error on Line|Original Line):.*$|in file \"[^\"]*\", ?"


@contextmanager
def _engine(lines: Lines, mark: bytes = b"") -> Iterator[tuple[Any, str]]:
    """DuckDB, which sees this file and nothing else, and the file's path as a literal. Raises
    CallerError for what the engine cannot read or evaluate."""
    duckdb = library("duckdb", "logs")
    with TemporaryDirectory() as folder, duckdb.connect() as engine:
        path = Path(folder, "log")
        if lines.file is not None and not mark:
            path.symlink_to(Path(lines.file).resolve())
        else:
            _spool(lines, path, mark)
        try:
            engine.execute(f"SET allowed_paths = [{_text(str(path.resolve()))}]; {_SETTINGS}")
            yield engine, _text(str(path))
        except duckdb.Error as error:
            text = str(error).replace(folder, "")
            if line := re.search(r"on Line: (\d+)|in line (\d+)", text):
                lines.number = int(line[1] or line[2])
            result = re.sub(r"^[\w ]+ Error: ?", "", re.sub(_NOISE, "", text).strip())
            lines.element, result = "", shorten(result.partition("\n")[0], 120)
            lines.wrong(_KINDS[_kind_of(lines)], result, "correct the file, or --columns")


def _kind_of(lines: Lines) -> str:
    """csv, json or parquet."""
    head = lines.head.lstrip()
    if head.startswith(PARQUET):
        return "parquet"
    return "json" if head.startswith((b"{", b"[")) else "csv"


def _spool(lines: Lines, path: Path, mark: bytes) -> None:
    """Copies the file, or of the lines that have the mark what is from the first brace on."""
    left = _MOST_SPOOLED
    try:
        with path.open("wb") as file:
            for piece in lines.pieces():
                if mark in piece:
                    left -= file.write(piece[piece.find(b"{") :] if mark else piece)
                if left < 0:
                    lines.wrong(f"a log of at most {_MOST_SPOOLED:,} bytes", "more", "split it")
    except OSError as error:
        lines.wrong("room to unpack the log", str(error.strerror), "unpack it yourself")


def _fetched(lines: Lines, engine: Any) -> Iterator[Any]:
    """The rows of a statement; `lines` says which one."""
    rows = chain.from_iterable(iter(partial(engine.fetchmany, 2048), []))
    for lines.number, row in enumerate(rows, 1):
        lines.element = f"row {lines.number}"
        yield row


def documents(lines: Lines) -> Iterator[bytes]:
    """The objects of a JSON list, or of a file with one after another; `lines` says which one."""
    with _engine(lines) as (engine, name):
        engine.execute(f"SELECT json FROM read_json_objects({name}, {_JSON})")
        for (text,) in _fetched(lines, engine):
            yield (text or "null").encode()


def _values(
    lines: Lines, columns: Mapping[str, Column], within: str, zipped: bool, mark: bytes
) -> Iterator[Sequence[str | None]]:
    """The columns of each row, as text, and its `type`; `lines` says which row. within: the path of
    the list that has the rows, empty for the file itself. zipped: each column is a list of the one
    object of the file. Raises CallerError with the row, or for a column that is not there."""
    kind = "json" if mark else _kind_of(lines)
    if kind == "csv" and within:
        raise CallerError(f"--rows: expected a JSON document, found {lines.path}; leave it out")
    with _engine(lines, mark) as (engine, name):
        file = f"FROM read_json({name}, {_JSON}, {_TYPED})"
        if kind == "parquet":
            file = f"FROM read_parquet({name})"
        elif kind == "csv":
            names, delimiter = reading.header(lines)
            skip = lines.number - 1 if lines.file else 0
            how = f"{_CSV}, delim = {_text(delimiter)}, skip = {skip}"
            texts = ", ".join(f"c{place}: 'VARCHAR'" for place in range(len(names)))
            untyped = f"auto_detect = false, columns = {{{texts}}}"
            # says the line of a fault, as looking for types does not
            engine.execute(f"SELECT max(c0) FROM read_csv({name}, {how}, {untyped})").fetchall()
            file = f"FROM read_csv({name}, {how}, {_CSV_TYPED})"
        if within:
            file = f"FROM (SELECT unnest({_name(within.split('.'))}, max_depth := 2) {file})"
        if zipped:
            if len(engine.execute(f"SELECT 1 {file} LIMIT 2").fetchall()) > 1:
                lines.element = "[1]"
                lines.wrong("one run in the file", "another one", "split the file")
            unnested = (f"unnest({item.name}) AS {item.name}" for item in columns.values())
            file = f"FROM (SELECT {', '.join(unnested)} {file})"
        result = engine.execute(f"DESCRIBE {file}").fetchall()
        known: dict[str, tuple[str, ...]] = {row[0]: (row[0],) for row in result}
        for path in reading.paths(Head(lines).first):
            lists = [place for place, text in enumerate(path, 1) if WITHIN in text]
            inner = path[max(lists, default=0) :]
            known.setdefault(".".join(inner), inner)
        requested = [column.name for column in columns.values()]
        plain = {text: tuple(text.split(".")) for text in requested if re.fullmatch(_PLAIN, text)}
        quoted = {text: _name(path) for text, path in {**plain, **known}.items()}
        chosen = (quoted.get(text, text) for text in requested)
        kinds = '"type"' if any(row[0] == "type" for row in result) else "NULL"
        texts = ", ".join(f"CAST(({text}) AS VARCHAR)" for text in (*chosen, kinds))
        try:
            engine.execute(f"SELECT {texts} {file}")
        except Exception as error:
            missing = re.search(r'(?:column|key) "([^"]*)"', str(error))
            if missing is None or type(error).__name__ != "BinderException":
                raise
            no_column(lines, f"a column {shorten(missing[1])}", [*known], missing[1])
        yield from _fetched(lines, engine)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(path: Sequence[str]) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in path)


def no_column(lines: Lines, expected: str, names: Sequence[str], wanted: str = "") -> NoReturn:
    """Raises CallerError that lists the columns of a log and proposes which are meant."""
    hint = closest(wanted, names[:_COMPARED]) if wanted else ""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    listed = ", ".join(shorten(name) for name in names[:_LISTED])
    do = guess(names[:_COMPARED]) or "--columns time=COLUMN,input=COLUMN,output=COLUMN"
    text = f"the columns {listed}{more}{hint}" if names else "none"
    lines.wrong(expected, text, f"name those of the log, such as {do}")


def guess(names: Sequence[str]) -> str:
    """The options that probably name the columns of a log; empty if some are not to be guessed.
    names: as of `Head.names`."""
    roles: dict[str, str] = {}
    for role, (like, unlike) in _DATA["guess"].items():
        for name in names:
            column = name.rpartition(f"{WITHIN}.")[2]
            last = column if role == "session" else column.rpartition(".")[2]
            fits = re.search(like, column, re.I) and not re.search(unlike, last, re.I)
            if fits and name not in roles.values() and name.isprintable() and len(name) < 80:
                roles[role] = name
                break
    for side in ("input", "output"):
        if roles.keys().isdisjoint({side, f"{side}_ids"}) or "time" not in roles:
            return ""
        if f"{side}_ids" in roles:
            roles.pop(side, None)
    within, _, time = roles["time"].rpartition(f"{WITHIN}.")
    unit = re.search(r"_(s|ms|us|ns)$", time)
    roles["time"] = time + (f":{unit[1]}" if unit else "")
    columns = ",".join(f"{role}={name.rpartition(f'{WITHIN}.')[2]}" for role, name in roles.items())
    return (f"--rows {quote(within)} " if within else "") + f"--columns {quote(columns)}"


# -- known logs


def _log(
    summary: str,
    columns: list[str],
    names: Sequence[str] = (),
    optional: Sequence[str] = (),
    zipped: bool = False,
    mark: str = "",
    folder: bool = False,
) -> Format:
    """A known log: a table of logs.toml, which says what these are."""
    known = parse_columns(",".join(columns), ())

    def recognises(head: Head) -> bool:
        if mark:
            return mark in head.text
        if any("." in name for name in names):
            return head.line.startswith("{") and all(_has(head, name) for name in names)
        is_own = [*names] == [*NEEDED] and head.line.startswith(PARQUET.decode())
        is_list = zipped and head.line.startswith("[")
        return is_own or ({*names} <= {*head.columns, *head.keys} and not is_list)

    def rows(lines: Lines, about: About) -> Iterator[Row]:
        if about.columns:
            return _rows(lines, about, parse_columns(about.columns))
        head = Head(lines)
        result = {
            k: column for k, column in known.items() if k not in optional or _has(head, column.name)
        }
        return _rows(lines, about, result, zipped, mark.encode())

    return Format(summary, recognises, rows, folder, is_log=True)


def _has(head: Head, name: str) -> bool:
    """Whether a file has the field; within others, after a dot."""
    return name in head.columns or f'"{name.rpartition(".")[2]}"' in head.text


LOGS = {name: _log(**row) for name, row in _DATA.items() if name != "guess"}


# -- requests


def _rows(
    lines: Lines,
    about: About,
    columns: Mapping[str, Column],
    zipped: bool = False,
    mark: bytes = b"",
) -> Iterator[Row]:
    """The rows in order of time."""
    clock, sides = columns.get("time"), ("input", "output")
    tokens = [f"{side}_ids" if f"{side}_ids" in columns else side for side in sides]
    if "input_ids" in columns:
        about.of_tokens()
        about.knows_output = "output_ids" in columns
    elif "blocks" not in columns:
        about.segments = "session" in columns
        about.without_blocks(lines)
    # of each request: its time, tokens of prompt and answer, session and row
    arrays = times, prompts, outputs, sessions, numbers = [array("q") for _ in range(5)]
    blocks, ids = list[Sequence[int]](), dict[str, int]()
    cached, firsts_ns = 0, array("q")

    def wrong(role: str, expected: str) -> NoReturn:
        text = shorten(row[role]) or "nothing"
        lines.wrong(f"{columns[role].name}: {expected}", text, "correct the row")

    def total(role: str) -> int:
        """An integer, however it is written; 0 if there is none."""
        text = re.fullmatch(r"(\d{0,20})(?:\.0*)?", row[role], re.ASCII)
        if text is None or int(text[1] or 0) > MAX_REQUEST_TOKENS:
            wrong(role, f"an integer from 0 to {MAX_REQUEST_TOKENS}")
        return int(text[1] or 0)

    def listed(role: str) -> array[int]:
        try:
            return array("q", msgspec.json.decode(row[role] or "[]", type=list[int]))
        except (ValueError, RecursionError, OverflowError):
            wrong(role, "a list of integers of at most 63 bits")

    for *values, kind in _values(lines, columns, about.rows or "", zipped, mark):
        number = lines.number
        row = {role: (value or "").strip() for role, value in zip(columns, values, strict=True)}
        if not any(row[role] for role in tokens):
            others = _OTHERS.format(f"of type {shorten(kind)} " if kind else "")
            few = others in about.notes or len(about.notes) < _MOST_TYPES
            about.notes[others if few else _OTHERS.format("")] += 1
            continue
        lists = [listed(role) for role in tokens if role.endswith("_ids")]
        lengths = [total(role) for role in tokens if not role.endswith("_ids")]
        prompt, output = [*map(len, lists), *lengths]
        if not prompt or not output:
            about.notes[_EMPTY] += 1
            continue
        time_ns = lines.moment_ns(clock.name, row["time"], clock.unit) if clock else 0
        about.notes[_AT_ONCE] += clock is None
        if row.get("id"):
            before = ids.setdefault(row["id"], len(times))
            if before < len(times):
                about.notes[_REPEATED] += 1
                outputs[before] = max(outputs[before], output)
                continue
        if "cached" in row:
            cached += min(prompt, total("cached"))
        if row.get("ttft"):
            first = columns["ttft"]
            firsts_ns.append(lines.moment_ns(first.name, row["ttft"], first.unit))
        name = row.get("session", "")
        if len(name) > reading.MOST_NAME:
            wrong("session", f"text of at most {reading.MOST_NAME} characters")
        session = number
        if "session" in columns:  # the same in all files
            session = about.seen.setdefault(name or f"{lines.path}:{number}", len(about.seen))
        for column, value in zip(arrays, (time_ns, prompt, output, session, number), strict=True):
            column.append(value)
        if "blocks" in row:
            about.fixed(lines, max(1, total("block_size")))
            blocks.append(msgspec.json.decode(row["blocks"] or "[]", type=list[int]))
            if len(blocks[-1]) != prompt // about.block_size:
                reading.check_count(lines, len(blocks[-1]), prompt, about.block_size)
        elif lists:
            blocks.append(reading.blocks_of(sum(lists, array("q")), about.block_size))
        if len(times) == about.limit:
            break
    if not times:
        lines.element, lines.number = "", 1
        lines.wrong("a request", "none", "give a log with a row for each request")
    median_s = median_low(firsts_ns) / NS_PER_S if firsts_ns else None
    if "cached" in columns or firsts_ns:
        about.measured = Measured(cached if "cached" in columns else None, median_s)
    # sessions are known in the order of time alone; other rows of all files are sorted together
    sharing, about.sorts = _Sharing(), not about.segments
    order = np.argsort(np.asarray(times), kind="stable").tolist()
    for place in order if about.segments else range(len(times)):
        lines.number, lines.element = numbers[place], f"row {numbers[place]}"
        session, both = sessions[place], (prompts[place], outputs[place])
        shared: Sequence[Any] = blocks[place] if blocks else ()
        if about.segments:
            shared = sharing.segments(session, numbers[place], *both)
            if len(shared) > _MOST_SEGMENTS:
                most = f"conversations of at most {_MOST_SEGMENTS // 2:,} turns"
                lines.wrong(most, "a longer one", "name a column of shorter sessions")
        known = str(session) if "session" in columns or about.segments else None
        yield Row(times[place] - times[order[0]] * about.segments, *both, shared, session=known)
    if about.segments:
        about.assumed.append(sharing.SENTENCE)


class _Sharing:
    """What each prompt begins with: the prompt and the answer before it in its session, or that
    prompt alone, as far as its length allows. It goes on with a stream of its own, numbered by its
    row, so the same row has the same tokens however much of the file is read."""

    SENTENCE = (
        "Assumed, since a log does not say it: a prompt begins with the prompt and the answer "
        "before it in its session, as far as its length allows."
    )

    def __init__(self) -> None:
        # by session: segments, and tokens without and with the answer
        self._sessions: dict[int, tuple[list[Segment], int, int]] = {}

    def segments(self, session: int, row: int, length: int, output: int) -> list[Segment]:
        """Of a prompt, and then of its answer."""
        before, prompt, number = self._sessions.get(session, _NOTHING)
        if length < prompt:
            before, prompt, number = _NOTHING
        left = number if length >= number else prompt or min(length, number)
        own = length - left
        pairs = []
        for stream, tokens in before:
            if left:
                pairs.append((stream, min(tokens, left)))
                left -= pairs[-1][1]
        pairs += [(2 * row - 1, own)] * (own > 0) + [(2 * row, output)]
        self._sessions[session] = pairs, length, length + output
        return pairs
