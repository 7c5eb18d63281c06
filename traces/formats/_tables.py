"""Rows of a CSV, JSON or Parquet file by expressions over its columns, with DuckDB (extra `logs`).

An expression is the user's own, or of a known format. DuckDB parses it; what is executed is built
from that tree: columns become numbered texts, and nothing but operators, casts and the functions
below is allowed. Names and values of the file never become part of a statement. The engine sees
this one file, no other, and no extension, and has bounded memory.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from hicache.core.errors import CallerError, closest

from . import base
from .base import Lines

PARQUET = b"PAR1"
MOST_COLUMNS = 10_000
_MOST_SPOOLED = 64 << 30  # bytes, of a log that is packed or comes on standard input
_MOST_OBJECT = 64 << 20  # bytes
_MEMORY = "2GiB"
_FETCHED = 2048  # rows
_LISTED, _COMPARED = 12, 500
# How a column that has a role is called, beside what no such column is called.
_GUESSES = {
    "time": (r"time|created|date|start|^ts$|_at$", r"end|elapsed|finish|first|updated|to_|latency"),
    "input_ids": (r"(input|prompt).*ids$", r"^$"),
    "output_ids": (r"(output|completion|answer).*ids$", r"^$"),
    "input": (r"prompt|input|context|request.?tok", r"cach|detail|cost|text|id|price|messages"),
    "output": (r"completion|output|generated|answer|response.?tok", r"detail|cost|text|id|reason"),
    "session": (r"session|conversation|thread|chat", r"completion|usage|time|count|type"),
    "cached": (r"cached|cache.?read", r"cost"),
}
_LOOKED_AT, _LOOKED_AT_BYTES = 100, 4 << 20  # rows whose columns are known by name
_DEEPEST = 8
_ARITHMETIC = {*("+", "-", "*", "/", "//", "%"), *("round", "floor", "ceil", "abs")}
_FUNCTIONS = {
    *_ARITHMETIC,
    *("least", "greatest", "nullif", "ifnull", "concat", "||", "lower", "upper", "trim", "length"),
    *("substr", "substring", "left", "right", "replace", "split_part", "regexp_extract"),
    *("contains", "starts_with", "~~", "!~~", "strptime", "epoch", "epoch_ms", "epoch_us"),
    *("epoch_ns", "to_timestamp", "make_timestamp", "date_trunc", "date_part", "date_diff"),
}
_CLASSES = {
    *("COLUMN_REF", "CONSTANT", "FUNCTION", "CAST", "TYPE", "OPERATOR", "COMPARISON"),
    *("CONJUNCTION", "CASE", "BETWEEN"),
}
_NUMBERS = frozenset({"INTEGER", "DECIMAL", "DOUBLE", "NUMERIC", "FLOAT"})
_NOISE = r"(?m)^.*(Error on Line|Original Line):.*$|in file \"[^\"]*\", ?"
_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


_CONFIG: dict[str, Any] = {
    "threads": 1,
    "memory_limit": _MEMORY,
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


@contextmanager
def _engine(lines: Lines) -> Iterator[tuple[Any, str, int]]:
    """DuckDB, which sees this file and nothing else; its path as a literal, and how many lines are
    before its head. Raises CallerError for what the engine cannot read or evaluate."""
    try:
        duckdb = import_module("duckdb")
    except ImportError:
        raise CallerError(
            f"{lines.path}: expected the library duckdb to read a log, found none; "
            "pip install 'hicache[logs]'"
        ) from None
    with TemporaryDirectory() as folder, duckdb.connect(config=_CONFIG) as engine:
        path, skip = Path(folder, "log"), 0
        if lines.file is not None:
            path.symlink_to(Path(lines.file).resolve())
            skip = lines.number - 1
        else:
            _spool(lines, path)
        try:
            engine.execute(f"SET allowed_paths = [{_text(str(path.resolve()))}]")
            for setting in _SETTINGS:
                engine.execute(setting)
            yield engine, _text(str(path)), skip
        except duckdb.Error as error:
            text = str(error).replace(folder, "")
            if line := re.search(r"on Line: (\d+)|in line (\d+)", text):
                lines.number = int(line[1] or line[2])
            text = re.sub(_NOISE, "", text)
            found = re.sub(r"^[\w ]+ Error: ?", "", text.strip()).partition("\n")[0]
            lines.element = ""
            kinds = {"csv": "a line of CSV", "json": "JSON", "parquet": "Parquet"}
            do = "correct the file, or --columns"
            lines.wrong(kinds[kind_of(lines)], base.shorten(found, 120), do)


def kind_of(lines: Lines) -> str:
    """csv, json or parquet."""
    head = lines.head.lstrip()
    if head.startswith(PARQUET):
        return "parquet"
    return "json" if head.startswith((b"{", b"[")) else "csv"


def _fetched(lines: Lines, engine: Any) -> Iterator[Any]:
    """The rows of a statement; `lines` says which one."""
    count = 0
    while rows := engine.fetchmany(_FETCHED):
        for row in rows:
            count += 1
            lines.element, lines.number = f"row {count}", count
            yield row


def _objects(name: str) -> str:
    """The statement that yields the objects of a file of JSON: a list, or one after another."""
    options = f"maximum_object_size = {_MOST_OBJECT}, compression = 'none'"
    return f"SELECT json FROM read_json_objects({name}, {options})"


def documents(lines: Lines) -> Iterator[bytes]:
    """The objects of a JSON list, or of a file with one after another; `lines` says which one."""
    with _engine(lines) as (engine, name, _):
        engine.execute(_objects(name))
        for (text,) in _fetched(lines, engine):
            yield (text or "null").encode()


class Table:
    """expressions: by role. within: the path of the list that has the rows, empty for the file
    itself. zipped: each column is a list of the one object of the file."""

    def __init__(
        self, lines: Lines, expressions: Mapping[str, str], within: str = "", zipped: bool = False
    ) -> None:
        self._lines = lines
        self._expressions = expressions
        self._within = within
        self._zipped = zipped
        self._kind = kind_of(lines)
        if self._kind == "csv" and within:
            raise CallerError(f"--rows: expected a JSON document, found {lines.path}; leave it out")
        self._known: dict[str, tuple[str, ...]] = {}  # columns by name, with dots
        self._leaves: list[tuple[str, ...]] = []

    def rows(self) -> Iterator[Sequence[str | None]]:
        """The values of each row as text, in the order of the expressions; `lines` says which row.
        Raises CallerError with the row."""
        lines = self._lines
        with _engine(lines) as (engine, name, skip):
            self._begin(engine, name, skip)
            columns = [self._column(engine, *pair) for pair in self._expressions.items()]
            engine.execute(self._statement(columns))
            yield from _fetched(lines, engine)
            if self._zipped and engine.execute(f"{self._file} LIMIT 1 OFFSET 1").fetchone():
                lines.element = "[1]"
                lines.wrong("one run in the file", "another one", "split the file")

    def _begin(self, engine: Any, name: str, skip: int) -> None:
        """Learns the names of the columns. `_file` yields the rows: of CSV in columns c0, c1, ...,
        of others as JSON."""
        if self._kind == "csv":
            header, delimiter = _header(self._lines)
            self._known = {name: (name,) for name in header}
            self._places = {name: place for place, name in [*enumerate(header)][::-1]}
            names = ", ".join(f"c{place}: 'VARCHAR'" for place in range(len(header)))
            self._file = (
                f"FROM read_csv({name}, columns = {{{names}}}, auto_detect = false, header = true, "
                f"delim = {_text(delimiter)}, quote = '\"', escape = '\"', skip = {skip}, "
                f"max_line_size = {base.MAX_LINE_BYTES}, compression = 'none')"
            )
            return
        self._file = _objects(name)
        if self._kind == "parquet":
            self._file = f"SELECT to_json(t) AS json FROM (SELECT * FROM read_parquet({name})) t"
        if self._within:
            path = _pointer(self._within.split("."))
            rows = f"unnest(TRY_CAST(json_extract(json, {path}) AS JSON[]))"
            self._file = f"SELECT {rows} AS json FROM ({self._file})"
        left = _LOOKED_AT_BYTES
        engine.execute(f"{self._file} LIMIT {_LOOKED_AT}")
        while left > 0 and (row := engine.fetchone()):
            text = row[0] or "null"
            left -= len(text)
            with suppress(ValueError, RecursionError):
                self._learn(json.loads(text), ())

    def _learn(self, value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, dict) and len(path) < _DEEPEST:
            for name, inner in value.items():
                if len(self._known) >= MOST_COLUMNS:
                    return
                self._learn(inner, (*path, name))
        elif path:
            self._known.setdefault(".".join(path), path)

    def _statement(self, columns: Sequence[str]) -> str:
        leaves = self._leaves
        if self._kind == "csv":
            values = [f"c{self._places[leaf[0]]}" for leaf in leaves]
            rows = self._file
        elif self._zipped:
            lists = (f"json_extract(json, {_pointer(leaf)})" for leaf in leaves)
            values = [f"unnest(TRY_CAST({one} AS VARCHAR[]))" for one in lists]
            rows = f"FROM ({self._file} LIMIT 1)"
        else:
            if self._kind == "parquet":
                tops = ", ".join(sorted({_name(leaf[0]) for leaf in leaves}))
                self._file = self._file.replace("SELECT *", f"SELECT {tops or '*'}", 1)
            paths = ", ".join(map(_pointer, leaves))
            values = [f"v[{n + 1}]" for n in range(len(leaves))]
            rows = f"FROM (SELECT json_extract_string(json, [{paths}]) AS v FROM ({self._file}))"
        named = ", ".join(f"{value} AS v{n}" for n, value in enumerate(values))
        texts = [f"v{n} AS t{n}, TRY_CAST(v{n} AS DOUBLE) AS n{n}" for n in range(len(leaves))]
        inner = f"SELECT {', '.join(texts)} FROM (SELECT {named} {rows})"
        return f"SELECT {', '.join(columns)} FROM ({inner})"

    def _column(self, engine: Any, role: str, expression: str) -> str:
        """The statement's column for an expression."""
        if expression in self._known:
            return f"t{self._leaf(self._known[expression])}"
        if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", expression):
            return f"t{self._leaf(tuple(expression.split('.')))}"
        tree = _tree(engine, role, expression)
        [node] = tree["statements"][0]["node"]["select_list"]
        if node["class"] == "COLUMN_REF":
            return f"t{self._leaf(tuple(node['column_names']))}"
        self._rewrite(role, node, False)
        text = engine.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchone()
        return f"CAST(({text[0].removeprefix('SELECT ')}) AS VARCHAR)"

    def _leaf(self, path: tuple[str, ...]) -> int:
        name = ".".join(path)
        path = self._known.get(name, path)
        if name not in self._known and self._kind != "json":
            self.missing(name)
        if path not in self._leaves:
            self._leaves.append(path)
        return self._leaves.index(path)

    def _rewrite(self, role: str, node: Any, is_number: bool) -> None:
        """Columns become numbered ones; raises CallerError for what is no scalar expression."""
        if isinstance(node, list):
            for one in node:
                self._rewrite(role, one, is_number)
        if not isinstance(node, dict):
            return
        kind = node.get("class")
        name = node.get("function_name")
        if kind not in (None, *_CLASSES) or (name is not None and name not in _FUNCTIONS):
            _refuse(role, str(name or kind).lower())
        if kind == "COLUMN_REF":
            leaf = self._leaf(tuple(node["column_names"]))
            node["column_names"] = [f"{'n' if is_number else 't'}{leaf}"]
        elif kind in ("CAST", "FUNCTION"):
            is_number = kind == "FUNCTION" and name in _ARITHMETIC
        if kind is not None:
            is_number = is_number or any(map(_is_number, _children(node)))
        for field, inner in node.items():
            if field != "type_expr" and isinstance(inner, dict | list):
                self._rewrite(role, inner, is_number)

    def missing(self, name: str) -> NoReturn:
        """Raises CallerError for a column that is not there."""
        self._lines.element, self._lines.number = "", 1
        names = [*self._known]
        near = closest(name, [one for one in names[:_COMPARED] if len(one) <= base.MOST_NAME])
        no_column(self._lines, f"a column {base.shorten(name)}", names, near)


def no_column(lines: Lines, expected: str, names: Sequence[str], hint: str = "") -> NoReturn:
    """Raises CallerError that lists the columns of a log and proposes which are meant."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    listed = ", ".join(base.shorten(one) for one in names[:_LISTED])
    do = guess(names[:_COMPARED]) or "--columns time=ts,input=prompt_tokens,output=answer_tokens"
    found = f"the columns {listed}{more}{hint}" if names else "none"
    lines.wrong(expected, found, f"name those of the log, such as {do}")


def guess(names: Sequence[str]) -> str:
    """The options that probably name the columns of a log; empty if some are not to be guessed.
    names: as of `Head.names`."""
    found: dict[str, str] = {}
    for role, (like, unlike) in _GUESSES.items():
        for name in names:
            column = name.rpartition(base.WITHIN)[2]
            last = column if role == "session" else column.rpartition(".")[2]
            fits = re.search(like, column, re.I) and not re.search(unlike, last, re.I)
            if fits and name not in found.values() and name.isprintable() and len(name) < 80:
                found[role] = name
                break
    for side in ("input", "output"):
        if found.keys().isdisjoint({side, f"{side}_ids"}) or "time" not in found:
            return ""
        if f"{side}_ids" in found:
            found.pop(side, None)
    within = found["time"].rpartition(base.WITHIN)[0]
    unit = re.search(r"_(s|ms|us|ns)$", found["time"])
    found["time"] += f":{unit[1]}" if unit else ""
    columns = ",".join(f"{role}={name.rpartition(base.WITHIN)[2]}" for role, name in found.items())
    return (f"--rows {quote(within)} " if within else "") + f"--columns {quote(columns)}"


def _spool(lines: Lines, path: Path) -> None:
    left = _MOST_SPOOLED
    try:
        with path.open("wb") as file:
            for piece in lines.pieces():
                left -= file.write(piece)
                if left < 0:
                    lines.wrong(f"a log of at most {_MOST_SPOOLED:,} bytes", "more", "split it")
    except OSError as error:
        raise CallerError(
            f"{lines.path}: expected room to unpack the log, found: {error.strerror}; unpack it "
            "yourself"
        ) from None


def _header(lines: Lines) -> tuple[list[str], str]:
    """The names of the columns of CSV, and what is between them."""
    text = next(lines.texts())
    delimiter = max(",;\t", key=text.count)
    if text.count(delimiter) >= MOST_COLUMNS:
        lines.wrong(f"at most {MOST_COLUMNS:,} columns", "more", "leave out what is not read")
    try:
        row = next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error as error:
        lines.wrong("a line of CSV", base.shorten(str(error)), "correct the line")
    return [name.strip() for name in row], delimiter


def _tree(engine: Any, role: str, expression: str) -> Any:
    """The tree of one scalar expression, as DuckDB parses it."""
    statement = engine.execute("SELECT json_serialize_sql(?::VARCHAR)", [f"SELECT {expression}"])
    tree = json.loads(statement.fetchone()[0])
    if tree["error"]:
        _refuse(role, base.shorten(str(tree.get("error_message", "")).partition("\n")[0]))
    plain = json.loads(engine.execute("SELECT json_serialize_sql('SELECT 1')").fetchone()[0])
    rest = [
        {**one["statements"][0]["node"], "select_list": [], "from_table": {}}
        for one in (tree, plain)
    ]
    if len(tree["statements"]) != 1 or rest[0] != rest[1]:
        _refuse(role, "more")
    node = tree["statements"][0]["node"]
    if len(node["select_list"]) != 1 or node["from_table"]["type"] != "EMPTY":
        _refuse(role, "more")
    if node["select_list"][0]["alias"]:
        _refuse(role, "a name for it")
    return tree


def _refuse(role: str, found: str) -> NoReturn:
    raise CallerError(
        f"--columns: expected for {role} one scalar expression over columns, found {found}; see "
        "docs/formats.md"
    )


def _children(node: dict[str, Any]) -> Iterator[Any]:
    for inner in node.values():
        for one in inner if isinstance(inner, list) else [inner]:
            yield one.get("expression", one) if isinstance(one, dict) else one


def _is_number(node: Any) -> bool:
    literal = node.get("literal") if isinstance(node, dict) else None
    return isinstance(literal, dict) and literal.get("kind") in _NUMBERS


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _pointer(path: Sequence[str]) -> str:
    return _text("".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path))
