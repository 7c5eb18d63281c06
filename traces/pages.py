"""What docs/json.md says of each record, from its docstring: `python -m traces.pages` writes it."""

import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from .commands.compare import Comparison
from .curves import CurveFigures
from .html import Report
from .results.record import Request, Result

PAGE = Path(__file__).parents[1] / "docs" / "json.md"
BEGIN, END = "<!-- from the types: python -m traces.pages -->\n", "<!-- end of the types -->\n"
ROOTS: dict[str, type[Struct]] = {
    "hicache replay": Result,
    "hicache replay --requests": Request,
    "hicache report": Report,
    "hicache compare": Comparison,
    "hicache curve": CurveFigures,
}
_FIELD = re.compile(r"^(\w+(?:, \w+)*): ", re.MULTILINE)


def total() -> str:
    """The page with the part that follows from the types."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + "\n" + text() + END + rest.partition(END)[2]


def text() -> str:
    """A section for each document, then one for each record in them."""
    records: dict[type[Struct], None] = {}
    for root in ROOTS.values():
        _collect(root, records)
    parts = [_section(title, kind) for title, kind in ROOTS.items()]
    others = [record for record in records if record not in ROOTS.values()]
    return "".join([*parts, *(_section(item.__name__, item, "###") for item in others)])


def _collect(kind: type[Struct], result: dict[type[Struct], None]) -> None:
    """Adds a record, and the records of its fields."""
    if kind not in result:
        result[kind] = None
        for name in kind.__struct_fields__:
            for record in _records(kind, name):
                _collect(record, result)


def _records(kind: type[Struct], name: str) -> Iterator[type[Struct]]:
    """The records of a field and of its elements."""
    hints: list[Any] = [get_type_hints(kind)[name]]
    while hints:
        hint = hints.pop(0)
        hints = [*get_args(hint), *hints]
        if isinstance(hint, type) and issubclass(hint, Struct):
            yield hint


def _section(title: str, kind: type[Struct], level: str = "##") -> str:
    about, message = _docstring_of(kind)
    rows: list[tuple[str, str]] = []
    for field in fields(kind):
        links = " or ".join(map(_link, _records(kind, field.name)))
        output = "; ".join(filter(None, (links, message.get(field.name, ""))))
        name = f"`{field.encode_name}`"
        if rows and rows[-1][1] == output:
            name = f"{rows.pop()[0]}, {name}"
        rows.append((name, output))
    lines = "".join(f"- {names}{f': {message}' if message else ''}\n" for names, message in rows)
    return f"{level} {title}\n\n{about}\n\n{lines}\n"


def _link(kind: type[Struct]) -> str:
    heading = next((title for title, root in ROOTS.items() if root is kind), kind.__name__)
    return f"[{kind.__name__}](#{heading.lower().replace(' ', '-')})"


def _docstring_of(kind: type[Struct]) -> tuple[str, dict[str, str]]:
    """What a docstring says of the record, and of each field."""
    head, *parts = _FIELD.split(cleandoc(vars(kind)["__doc__"]))
    result: dict[str, str] = {}
    for names, part in zip(parts[::2], parts[1::2], strict=True):
        result |= dict.fromkeys(names.split(", "), " ".join(part.split()))
    return " ".join(head.split()), result


if __name__ == "__main__":
    PAGE.write_text(total())
