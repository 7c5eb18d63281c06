"""Options: a field of a record, whose metadata says all that the command line knows of it.

    page_size: int | None = option("tokens of a page", at_least(1), "TOKENS")

The field gives the name (`--page-size`) and the default, the row the rest. `OptionRecord.read`
makes a parser of a record's options with the library cyclopts, which prints the help, proposes the
nearest name, and reads `--config FILE`. A record may be made of several: each class then has a
HEADING, under which the help lists its options. An error is one line.

Below are the parsers of values: sizes, ratios, bandwidths, names. Each raises ValueError, which
says what was expected.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, dataclass, field, fields
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from cyclopts import App, CycloptsError, Group, Parameter, Token
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict
from cyclopts.exceptions import UnknownOptionError, UnusedCliTokensError

from hicache import registry
from hicache.core.errors import CallerError, closest
from hicache.files import parsed, text_of

_ROW = "row"
_HELP = ("-h", "--help")
_CONFIG = "--config"
_MOST_BYTES = 1 << 24  # of a file with options
_DASH = "\0-"  # stands for -, a value and no option
_SIZE_WITH_UNIT = re.compile(r"\d[\d.]*([kmgt]i?b?|b)|[kmgt]i?b", re.ASCII | re.IGNORECASE)
WITHOUT_SPACES = "write a size without spaces (1TB), several with commas (0,512GB,1TB)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is said of one option.

    help        may be made when it is asked for, if that takes time.
    parse       reads a value, raises ValueError; None for a flag.
    short       a letter for it. named: its name, where that is not the field's.
    positional  a value without a name. optional: it may be left out.
    several     it may be given several times; if positional, it is all values without a name.
    values      how many values it takes.
    excludes    options with the same word exclude each other.
    common      one that people use: it is listed first.

    Of a replay:

    needs       what reads it, see replaying/options.
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
    metavar: str | None = None
    short: str = ""
    named: str = ""
    positional: bool = False
    optional: bool = False
    values: int = 1
    required: bool = False
    several: bool = False
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

    @property
    def shown(self) -> str:
        """What a message calls it."""
        return (self.row.metavar or self.name) if self.row.positional else self.flag


def option(
    help: str | Callable[[], str],
    parse: Callable[[str], Any] | None = None,
    metavar: str | None = None,
    *,
    default: Any = None,
    **more: Any,
) -> Any:
    """A field that is an option. more: what else its Row has."""
    row = Row(help=help, parse=parse, metavar=metavar, **more)
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


@dataclass(frozen=True, slots=True)
class OptionRecord:
    """The base of options: a frozen dataclass with one field for each option."""

    @classmethod
    def declared(cls) -> list[Declared]:
        return rows(cls)

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        """The record of the values that were read, by name."""
        return cls(**values)

    @classmethod
    def read(
        cls, words: Iterable[str], prog: str = "hicache", about: str = "", epilog: str = ""
    ) -> Self:
        """The record of these words. Prints the help and exits if it is asked for. Raises
        CallerError for what is no option or no value of it."""
        values, _ = read_values(cls.declared(), [*words], prog, about, epilog)
        return cls.made(values)

    @property
    def files(self) -> dict[str, str]:
        """The files that a generator reads, by what names them; empty where none is given."""
        return {}


def is_size(text: str) -> bool:
    """Whether a word is a size with its unit, or a unit alone."""
    return bool(_SIZE_WITH_UNIT.fullmatch(text))


class _RefusedError(Exception):
    """A value that an option does not take."""


def read_values(
    declared: Sequence[Declared],
    words: Sequence[str],
    prog: str,
    about: str = "",
    epilog: str = "",
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of all options, by name, and the text of those that were given, on the command
    line or in a file, "true" for a flag; see `OptionRecord.read`."""
    found: dict[str, Any] = {}
    texts: dict[str, str] = {}
    app = App(
        name=prog,
        help=about,
        help_format="plaintext",
        help_epilogue=epilog,
        usage=_usage(prog, declared),
        help_flags=(),
        version_flags=(),
    )
    app.default(_function(declared, found, texts))
    if set(_HELP) & {*words}:
        app.help_print([])
        raise SystemExit(0)
    try:
        app.config = _config(declared, words)
        app(
            [_DASH if word == "-" else word for word in words],
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        known = [one.flag for one in declared]
        raise CallerError(f"{_in_one_line(error, known)} (see {prog} --help)") from None
    except _RefusedError as error:
        raise CallerError(f"{error} (see {prog} --help)") from None
    texts |= {name: "true" for name, value in found.items() if value is True}
    return {one.name: found.get(one.name, one.default) for one in declared}, texts


def _in_one_line(error: CycloptsError, known: Sequence[str]) -> str:
    if isinstance(error, UnknownOptionError) and error.token:
        name = str(error.token.keyword or error.token.value)
        return f"unknown option: {name}{closest(name, known)}"
    if isinstance(error, UnusedCliTokensError):
        found = error.unused_tokens or []
        hint = f"; {WITHOUT_SPACES}" if any(map(is_size, found)) else ""
        return f"expected no further value, found {' '.join(found)}{hint}"
    text = " ".join(str(error).split()).removesuffix(".").replace(". Did you", "; did you")
    return f"{text[:1].lower()}{text[1:]}"


def _config(declared: Sequence[Declared], words: Sequence[str]) -> list[Dict]:
    """The options in the file after `--config`: of a TOML file, or of what a command wrote as JSON,
    whose `options` repeat it."""
    paths = [word.partition("=")[2] for word in words if word.startswith(f"{_CONFIG}=")]
    paths += [path for word, path in pairwise(words) if word == _CONFIG]
    if not paths or _CONFIG not in {one.flag for one in declared if not one.row.several}:
        return []
    text = text_of(paths[0], "file with options", _MOST_BYTES)
    try:
        found = parsed(text)["options"] if paths[0].endswith(".json") else tomllib.loads(text)
        if not isinstance(found, dict):
            raise ValueError("no options by name")
    except (ValueError, KeyError, TypeError) as error:
        raise CallerError(
            f"{paths[0]}: expected options such as `page-size = 64` (TOML), or a document of "
            f"`--json` (its name ends in .json) with the key options; found {error}"
        ) from None
    return [Dict(found, source=paths[0], use_commands_as_keys=False)]


def _usage(prog: str, declared: Sequence[Declared]) -> str:
    words = ["Usage:", prog]
    for one in declared:
        if one.row.positional:
            place = one.shown + ("..." if one.row.several else "")
            words.append(f"[{place}]" if one.row.optional else place)
    return " ".join([*words, "[option ...]"])


def _function(
    declared: Sequence[Declared], found: dict[str, Any], texts: dict[str, str]
) -> Callable[..., None]:
    """A function with these options as parameters, which puts into `found` what it is given. The
    text of each that has one goes into `texts`."""
    headings = dict.fromkeys("" if one.row.common else one.heading for one in declared)
    groups = {
        heading: Group(heading or "options", sort_key=place)
        for place, heading in enumerate(headings)
    }
    exclusive = {
        one.row.excludes: Group(one.row.excludes, show=False, validator=_one_of)
        for one in declared
        if one.row.excludes
    }
    parameters = []
    for one in declared:
        row = one.row
        listed = [groups["" if row.common else one.heading]]
        listed += [exclusive[row.excludes]] if row.excludes else []
        hint: Any = Annotated[_type(row), _parameter(one, tuple(listed), texts)]
        needed = row.required or (row.positional and (row.several or not row.optional))
        default = inspect.Parameter.empty if needed else one.default
        parameters.append(inspect.Parameter(one.name, _kind(row), default=default, annotation=hint))
    parameters.sort(key=lambda one: one.kind)
    places = [one for one in declared if one.row.positional]

    def keep(*values: Any, **named: Any) -> None:
        found.update(named)
        if places and places[0].row.several:
            found[places[0].name] = values
        else:
            found.update(zip((one.name for one in places), values, strict=False))

    keep.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    keep.__annotations__ = {one.name: one.annotation for one in parameters}
    return keep


def _kind(row: Row) -> Any:
    if not row.positional:
        return inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter.VAR_POSITIONAL if row.several else inspect.Parameter.POSITIONAL_ONLY


def _type(row: Row) -> Any:
    if row.parse is None:
        return bool
    return list[Any] if row.several and not row.positional else Any


def _parameter(one: Declared, groups: tuple[Group, ...], texts: dict[str, str]) -> Parameter:
    """What cyclopts knows of the option."""
    row, parse = one.row, one.row.parse
    about = row.help if isinstance(row.help, str) else row.help()
    if one.default not in (None, False, ()) and "(default: " not in about:
        about += f" (default: {one.default})"

    def convert(kind: type, tokens: Sequence[Token]) -> Any:
        words = ["-" if token.value == _DASH else token.value for token in tokens]
        texts[one.name] = words[-1]
        values = [_read(one, word) for word in words]
        if row.several and not row.positional:
            return tuple(values)
        return values[0] if row.values == 1 else tuple(values)

    names = [one.flag, *([row.short] if row.short else [])]
    return Parameter(
        name=None if row.positional else names,
        converter=convert if parse else None,
        negative="",
        group=groups,
        help=about,
        show_default=False,
        metavar=row.metavar or ("" if parse is None else one.name.upper()),
        required=row.required or (row.positional and not row.optional),
        n_tokens=row.values if row.values > 1 else None,
        allow_repeating=True if row.several else None,
    )


def _read(one: Declared, text: str) -> Any:
    assert one.row.parse is not None
    try:
        return one.row.parse(text)
    except ValueError as error:
        raise _RefusedError(f"{one.shown}: {error}") from None


def _one_of(arguments: ArgumentCollection) -> None:
    """Refuses options that exclude each other."""
    found = [one.names[0] for one in arguments if one.tokens]
    if len(found) > 1:
        raise _RefusedError(f"{found[1]}: not allowed with {found[0]}; give one of them")


# -- values

Unbounded = Literal["unbounded"]
UNBOUNDED: Unbounded = "unbounded"

_PREFIXES = ("", "K", "M", "G", "T")
_UNITS = {unit: 1000**power for power, unit in enumerate(_PREFIXES)} | {
    f"{unit}i": 1024**power for power, unit in enumerate(_PREFIXES) if unit
}
_SIZE = re.compile(r"(\d{1,40})(?:\.(\d{1,9}))?([KMGTkmgt]i?|)", re.ASCII)
_MOST = 1 << 48
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ns|us|ms|s|m|h)", re.ASCII)
_NANOSECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000} | {
    "m": 60 * 1_000_000_000,
    "h": 3600 * 1_000_000_000,
}
_MOST_NS = 10**15
_STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Speed of a host link: `bytes_per_s`, or the profile's times `factor` where that is 0."""

    factor: Fraction
    bytes_per_s: int = 0

    def __str__(self) -> str:
        return f"{self.bytes_per_s} B/s" if self.bytes_per_s else f"{float(self.factor):g}x"


def size(text: str) -> int:
    """A count with an optional suffix: K, M, G, T (thousands) or Ki, Mi, Gi, Ti (1,024s), in
    either case."""
    return _size(text, text, "a number such as 1M, 512K or 64Ki")


def byte_size(text: str) -> int:
    """A number of bytes: as `size`, and a B may follow (512GB, 512GiB)."""
    return _size(text, re.sub("[Bb]$", "", text), "bytes such as 512GB, 64GiB or 1T")


def request_number(text: str) -> int:
    """The number of a request in its trace."""
    return _size(text, text, "the number of a request, such as 4711")


def _size(text: str, number: str, expected: str) -> int:
    match = _SIZE.fullmatch(number)
    if not match:
        raise ValueError(f"expected {expected}, found {text!r}")
    whole, fraction, unit = match.groups()
    value = Fraction(f"{whole}.{fraction or 0}") * _UNITS[unit[:1].upper() + unit[1:]]
    if value.denominator != 1:
        raise ValueError(f"expected a whole number, found {text!r}")
    if value > _MOST:
        raise ValueError(f"expected at most {_MOST}, found {text!r}")
    return int(value)


def at_least(least: int, parse: Callable[[str], int] = size) -> Callable[[str], int]:
    """Returns a parser of sizes of `least` or more. parse: reads one size."""

    def read(text: str) -> int:
        value = parse(text)
        if value < least:
            raise ValueError(f"expected at least {least}, found {text!r}")
        return value

    return read


def between(least: int, most: int) -> Callable[[str], int]:
    """Returns a parser of sizes from `least` to `most`, both included."""

    def parse(text: str) -> int:
        value = size(text)
        if not least <= value <= most:
            raise ValueError(f"expected {least} to {most}, found {text!r}")
        return value

    return parse


def name(text: str) -> str:
    """The name of a file or folder. Refuses an empty name.

    `--replay "$TAPE"` passes an empty name if TAPE is not set; that must not count as no option.
    """
    if not text or "\0" in text:
        raise ValueError(f"expected a name, found {ascii(text) if text else 'none'}")
    return text


def output(text: str) -> str:
    """The name of a file to write. Every name of standard output is `-`."""
    return "-" if name(text) in _STDOUT else text


def device_pages(text: str) -> int | Unbounded:
    """A number of pages, or `unbounded`."""
    return UNBOUNDED if text == UNBOUNDED else at_least(1)(text)


def ratio(text: str) -> Fraction:
    """An exact number of 0 or more."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
        raise ValueError(f"expected a number such as 2 or 0.5, found {text!r}")
    return Fraction(text)


def positive_ratio(text: str) -> Fraction:
    """An exact number above 0."""
    value = ratio(text)
    if not value:
        raise ValueError(f"expected a number above 0, found {text!r}")
    return value


def part(text: str) -> Fraction:
    """A part of a whole: above 0, at most 1."""
    value = positive_ratio(text)
    if value > 1:
        raise ValueError(f"expected at most 1, found {text!r}")
    return value


def bandwidth(text: str) -> Bandwidth:
    """A multiple of the profile's host link (0.5x), or bytes per second and direction (50GB).

    A number without x or a unit could be either, so it is refused.
    """
    if text.endswith("x"):
        factor = ratio(text[:-1])
        if factor:
            return Bandwidth(factor)
    elif not text[-1:].isdigit():
        bytes_per_s = byte_size(text.removesuffix("/s"))
        if bytes_per_s:
            return Bandwidth(Fraction(1), bytes_per_s)
    raise ValueError(
        f"expected a multiple above 0 such as 0.5x or bytes per second such as 50GB, found {text!r}"
    )


def duration_ns(text: str) -> int:
    """A time with its unit: ns, us, ms, s, m or h. Returns nanoseconds."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(
            f"expected a time with its unit such as 200us, 1.5ms or 2s, found {text!r}"
        )
    value = Fraction(match[1]) * _NANOSECONDS[match[2]]
    if value.denominator != 1 or value > _MOST_NS:
        raise ValueError(f"expected whole nanoseconds, at most 1,000,000 s, found {text!r}")
    return int(value)


# A parser with the name of what it reads, for help: option("...", *COUNT).
COUNT = at_least(1), "N"
COUNT_OR_0 = at_least(0), "N"
TOKENS = at_least(1), "TOKENS"
TIME = duration_ns, "TIME"
FILE = name, "FILE"
OUTPUT = output, "FILE"


@dataclass(frozen=True, slots=True)
class Names:
    """A parser of names that can list them. known: the names. package: of entries to which users
    may add their own."""

    parse: Callable[[str], str]
    known: Callable[[], Sequence[str]]
    package: str = ""

    def __call__(self, text: str) -> str:
        return self.parse(text)


def entry(package: str, *extra: str) -> Names:
    """Returns a parser of the names in a registry folder, and of `extra` names."""

    def known() -> list[str]:
        return [*extra, *registry.names(package)]

    return Names(lambda text: choice(known())(text), known)


def choice(known: Sequence[str]) -> Names:
    """Returns a parser of these names. Hyphens and underscores are the same."""
    spelled = {name.replace("_", "-"): name for name in known}

    def parse(text: str) -> str:
        name = spelled.get(text.replace("_", "-"))
        if name is None:
            hint = registry.closest(text, known)
            raise ValueError(f"expected one of {', '.join(known)}, found {text!r}{hint}")
        return name

    return Names(parse, lambda: known)


def not_installed(option: str, extra: str, error: ModuleNotFoundError) -> CallerError:
    """The error for a library that an option needs. extra: that of the project which brings it."""
    missing = str(error.name).partition(".")[0]
    return CallerError(
        f"{option}: expected {missing} to be installed, and it is not; install it (in a clone: "
        f".venv/bin/pip install -e '.[{extra}]')"
    )
