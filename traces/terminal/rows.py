"""One row for each option: a field of a record whose metadata says all that the command line knows.

    page_size: int | None = option("tokens of a page", at_least(1), "TOKENS")

The field gives the name (`--page-size`) and the default, the row the rest. From the rows come the
parser and its help (`add_rows`), and the record of what was given. A record may be made of several:
each class then has a HEADING, under which `--help` lists its options. Errors of a parser are one
line. Does not define options.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, NoReturn

from hicache import registry
from hicache.core.errors import CallerError

from .options import WITHOUT_SPACES, is_size

_ROW = "row"
_NO_LISTS: Mapping[str, Callable[[str], Any]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is said of one option.

    help        may be made when it is asked for, if that takes time.
    parse       reads a value; None for a flag.
    short       a letter for it. named: its name, where that is not the field's.
    positional  a value without a name. nargs: as of argparse. several: it may be repeated.
    no          the help of `--no-NAME`, for a flag that has that, too.
    excludes    options with the same word exclude each other.
    common      one that people use: it is listed first.

    Of a replay:

    needs       what reads it, see replaying/unread.
    output      it decides what a command prints or writes, not what a replay does.
    one_value   a sweep may not vary it. commas: one value may have commas.
    file        the file that a value names.
    in_head     it is in the head of a document as it was given.
    keys        it changes the keys of a trace's pages in storage.
    tried       a value that changes a run, for tests, where its last name, 128, 0.5, 2s or 0.5x
                does not.
    """

    help: str | Callable[[], str]
    parse: Callable[[str], Any] | None = None
    metavar: str | tuple[str, ...] | None = None
    short: str = ""
    named: str = ""
    positional: bool = False
    nargs: str | int | None = None
    required: bool = False
    several: bool = False
    no: str = ""
    excludes: str = ""
    common: bool = False
    needs: tuple[Any, ...] = ()
    output: bool = False
    one_value: bool = False
    commas: bool = False
    file: Callable[[str], str | None] | None = None
    in_head: bool = False
    keys: bool = False
    tried: str = ""


@dataclass(frozen=True, slots=True)
class Declared:
    """An option of a record. name: of its field. heading: of the class that declares it."""

    name: str
    default: Any
    heading: str
    row: Row

    @property
    def flag(self) -> str:
        return self.row.named or flag(self.name)


def option(
    help: str | Callable[[], str],
    parse: Callable[[str], Any] | None = None,
    metavar: str | tuple[str, ...] | None = None,
    *,
    default: Any = None,
    **told: Any,
) -> Any:
    """A field that is an option. told: what else its Row has."""
    row = Row(help=help, parse=parse, metavar=metavar, **told)
    return field(default=default, metadata={_ROW: row})


def flag(name: str) -> str:
    """The option of this field as the user writes it."""
    return f"--{name.replace('_', '-')}"


def rows(record: type) -> list[Declared]:
    """The options of a record: common ones first, inherited ones last."""
    own = vars(record).get("__annotations__", ())
    found = [
        Declared(one.name, one.default, _heading(record, one), one.metadata[_ROW])
        for one in fields(record)
        if _ROW in one.metadata
    ]
    return sorted(found, key=lambda one: (not one.row.common, one.name not in own))


def _heading(record: type, one: Field[Any]) -> str:
    """The HEADING of the class that has the field."""
    owners = [base for base in record.__mro__ if one.name in vars(base).get("__annotations__", ())]
    return str(vars(owners[0]).get("HEADING", ""))


def add_rows(
    parser: argparse.ArgumentParser,
    declared: Iterable[Declared],
    lists: Mapping[str, Callable[[str], Any]] = _NO_LISTS,
) -> None:
    """Adds options to a parser. lists: by name, the parser of an option that is given several
    times, and is then a list; None if it is not given."""
    groups: dict[str, Any] = {}
    exclusive: dict[str, argparse._MutuallyExclusiveGroup] = {}
    for one in declared:
        row, heading = one.row, "" if one.row.common else one.heading
        if heading not in groups:
            groups[heading] = parser.add_argument_group(heading) if heading else parser
        action = None
        for names, given in _arguments(one):
            if one.name in lists:
                shown = "" if one.default is None else f" (default: {one.default})"
                changed = {"type": lists[one.name], "action": "append", "default": None}
                given |= {**changed, "help": f"{given['help']}{shown}"}
            action = groups[heading].add_argument(*names, **given)
        if row.excludes and action is not None:
            if row.excludes not in exclusive:
                exclusive[row.excludes] = parser.add_mutually_exclusive_group()
            exclusive[row.excludes]._group_actions.append(action)


def _arguments(one: Declared) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """What `add_argument` is called with."""
    row, parse = one.row, one.row.parse
    given: dict[str, Any]
    names = [row.short, one.flag] if row.short else [one.flag]
    said = row.help if isinstance(row.help, str) else row.help()
    if row.positional:
        given = {"type": parse, "metavar": row.metavar, "help": said}
        yield [one.name], {**given, **({"nargs": row.nargs} if row.nargs else {})}
    elif parse is None:
        given = {"action": "store_true", "dest": one.name, "default": one.default}
        yield names, {**given, "help": said}
        if row.no:
            yield [flag(f"no_{one.name}")], {**given, "action": "store_false", "help": row.no}
    else:
        given = {"type": parse, "metavar": row.metavar, "help": said, "default": one.default}
        given |= {"dest": one.name}
        if row.several:
            given |= {"action": "append", "default": list(one.default)}
        given |= {"nargs": row.nargs} if row.nargs else {}
        yield names, {**given, **({"required": True} if row.required else {})}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises CallerError instead of printing its usage, and takes options
    by their whole names alone."""

    def __init__(self, **given: Any) -> None:
        super().__init__(allow_abbrev=False, **given)

    def error(self, message: str) -> NoReturn:
        raise CallerError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """Reads all arguments. The error for an unknown option suggests the closest one."""
        found: argparse.Namespace
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            given = next((word.partition("=")[0] for word in unknown if word[:1] == "-"), "")
            hint = registry.closest(given, [*option_names(self)])
            if not given and any(is_size(word) for word in unknown):
                hint = f"; {WITHOUT_SPACES}"
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggests the closest name where a parser below this one was misspelt."""
        if action.choices is not None and value not in action.choices:
            known = [str(one) for one in action.choices]
            found = f"found {value!r}{registry.closest(value, known)}"
            raise argparse.ArgumentError(action, f"expected one of {', '.join(known)}, {found}")


def option_names(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of the parser and of the parsers below it."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from option_names(below)


class Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Adds the default of an option to its help, unless the help names a default already."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default in (None, False, (), []) or "(default: " in (action.help or "")
        return action.help if silent else super()._get_help_string(action)
