"""Options: a field of a record, whose metadata says all that the command line knows of it.

    page_size: int | None = option("tokens of a page", at_least(1), "TOKENS")

The field gives the name (`--page-size`) and the default, the row the rest. `OptionRecord.read`
makes a parser of a record's options with the library cyclopts, which prints the help, proposes the
nearest name, and reads `--config FILE`. A record may be made of several: each class then has a
HEADING, under which the help lists its options. An error is one line.

Below are the parsers of values: sizes, ratios, bandwidths, names. Each raises ValueError, which
says what was expected.
"""

import inspect
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any, Self

from cyclopts import App, CycloptsError, Group, Parameter, Token
from cyclopts.config import Dict
from cyclopts.exceptions import UnknownOptionError, UnusedCliTokensError
from cyclopts.validators import LimitedChoice

from hicache import registry
from hicache.core.errors import CallerError, closest
from hicache.files import parsed, text_of

_OPTION = "option"
_CONFIG = "--config"
_MOST_BYTES = 1 << 24  # of a file with options
_DASH = "\0-"  # stands for -, a value and no option


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What is said of one option, at its field: `rows` adds name, default and heading.

    name: of the field. heading: of the class that declares it.

    help: may be made when it is asked for. parse: reads a value, raises ValueError; None for a
    flag. short: a letter. named: its name, if another. positional: a value without a name, which
    `optional` lets be left out. several: it may be given several times; if positional, it is all
    values without a name. excludes: options with the same word exclude each other. common: listed
    first.

    Of a replay: needs: what reads it (replaying/options). output: it decides what is written, not
    what a replay does. one_value: a sweep may not vary it. commas: one value may have commas. file:
    the file that a value names.
    """

    name: str = ""
    default: Any = None
    heading: str = ""
    help: str | Callable[[], str]
    parse: Callable[[str], Any] | None = None
    metavar: str | None = None
    short: str = ""
    named: str = ""
    positional: bool = False
    optional: bool = False
    required: bool = False
    several: bool = False
    excludes: str = ""
    common: bool = False
    needs: tuple[Any, ...] = ()
    output: bool = False
    one_value: bool = False
    commas: bool = False
    file: Callable[[str], str | None] | None = None

    @property
    def flag(self) -> str:
        return self.named or flag(self.name)

    @property
    def shown(self) -> str:
        """What a message calls it."""
        return (self.metavar or self.name) if self.positional else self.flag

    @property
    def needed(self) -> bool:
        return self.required or (self.positional and not self.optional)

    @property
    def about(self) -> str:
        """Its help, with the default."""
        text = self.help if isinstance(self.help, str) else self.help()
        if self.default in (None, False, ()) or "(default: " in text:
            return text
        return f"{text} (default: {self.default})"


def option(
    help: str | Callable[[], str],
    parse: Callable[[str], Any] | None = None,
    metavar: str | None = None,
    *,
    default: Any = None,
    **more: Any,
) -> Any:
    """A field that is an option. more: what else an Option has."""
    declared = Option(help=help, parse=parse, metavar=metavar, **more)
    return field(default=default, metadata={_OPTION: declared})


def flag(name: str) -> str:
    """The option of this field as the user writes it."""
    return f"--{name.replace('_', '-')}"


def rows(record: type) -> list[Option]:
    """The options of a record: common ones first, inherited ones last."""
    owner = {
        name: base
        for base in reversed(record.__mro__)
        for name in vars(base).get("__annotations__", ())
    }
    result = []
    for each in fields(record):
        if _OPTION in each.metadata:
            heading = str(vars(owner[each.name]).get("HEADING", ""))
            named = {"name": each.name, "default": each.default, "heading": heading}
            result.append(replace(each.metadata[_OPTION], **named))
    return sorted(result, key=lambda option: (not option.common, owner[option.name] is not record))


@dataclass(frozen=True, slots=True)
class OptionRecord:
    """The base of options: a frozen dataclass with one field for each option."""

    @classmethod
    def declared(cls) -> list[Option]:
        return rows(cls)

    @classmethod
    def made(cls, values: dict[str, Any], texts: dict[str, str]) -> Self:
        """The record of the values that were read, by name. texts: of the options that were given,
        on the command line or in a file, "true" for a flag."""
        return cls(**values)

    @classmethod
    def read(
        cls, words: Sequence[str], prog: str = "hicache", about: str = "", epilog: str = ""
    ) -> Self:
        """The record of these words. Prints the help and exits if it is asked for. Raises
        CallerError for what is no option or no value of it."""
        return cls.made(*_read(cls.declared(), words, prog, about, epilog))


class _RefusedError(Exception):
    """A value that an option refuses."""


def _read(
    declared: Sequence[Option], words: Sequence[str], prog: str, about: str, epilog: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of all options, and the texts of those that were given; see `OptionRecord`."""
    texts: dict[str, str] = {}
    places = [
        f"[{text}]" if option.optional else text
        for option in declared
        if option.positional
        for text in [option.shown + "..." * option.several]
    ]
    app = App(
        name=prog,
        help=about,
        help_format="plaintext",
        help_epilogue=epilog,
        usage=" ".join(["Usage:", prog, *places, "[option ...]"]),
        help_flags=(),
        version_flags=(),
    )
    app.default(_function(_used(declared, words), texts))
    if {"-h", "--help"} & {*words}:
        app.help_print([])
        raise SystemExit(0)
    try:
        app.config = _config(declared, words)
        dashed = [_DASH if word == "-" else word for word in words]
        _, bound, _ = app.parse_args(dashed, exit_on_error=False, print_error=False)
    except UnknownOptionError as error:
        name = str(error.token.keyword or error.token.value)
        hint = closest(name, [option.flag for option in declared])
        raise CallerError(f"unknown option: {name}{hint} (see {prog} --help)") from None
    except UnusedCliTokensError as error:
        words = " ".join(error.unused_tokens or [])
        raise CallerError(f"expected no further value, found {words} (see {prog} --help)") from None
    except (CycloptsError, _RefusedError) as error:
        text = " ".join(str(error).split()).removesuffix(".").replace(". Did you", "; did you")
        if isinstance(error, CycloptsError):
            text = f"{text[:1].lower()}{text[1:]}"
        raise CallerError(f"{text} (see {prog} --help)") from None
    arguments = bound.arguments
    texts |= {name: "true" for name, value in arguments.items() if value is True}
    values = {option.name: arguments.get(option.name, option.default) for option in declared}
    return values, texts


def _used(declared: Sequence[Option], words: Sequence[str]) -> Sequence[Option]:
    """Those that the words name, since each takes time; all for a file of options or a mistake."""
    named = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
    few = [
        option
        for option in declared
        if named & {option.flag, option.short} or option.positional or option.required
    ]
    known = {text for option in few for text in (option.flag, option.short)}
    return few if named <= known - {_CONFIG} else declared


def _config(declared: Sequence[Option], words: Sequence[str]) -> list[Dict]:
    """The options in the file after `--config`: of a TOML file, or of what a command wrote as JSON,
    whose `options` repeat it."""
    paths = [word.partition("=")[2] for word in words if word.startswith(f"{_CONFIG}=")]
    paths += [path for word, path in pairwise(words) if word == _CONFIG]
    if not paths or _CONFIG not in {option.flag for option in declared if not option.several}:
        return []
    text = text_of(paths[0], "file with options", _MOST_BYTES)
    try:
        result = parsed(text)["options"] if paths[0].endswith(".json") else tomllib.loads(text)
        if not isinstance(result, dict):
            raise ValueError("no options by name")
    except (ValueError, KeyError, TypeError) as error:
        raise CallerError(
            f"{paths[0]}: expected options such as `page-size = 64` (TOML), or a document of "
            f"`--json` (its name ends in .json) with the key options; found {error}"
        ) from None
    return [Dict(result, source=paths[0], use_commands_as_keys=False)]


def _function(declared: Sequence[Option], texts: dict[str, str]) -> Callable[..., None]:
    """A function with these options as parameters. The text of each that has one goes into
    `texts`."""
    headings = dict.fromkeys("" if option.common else option.heading for option in declared)
    groups = {
        heading: Group(heading or "options", sort_key=place)
        for place, heading in enumerate(headings)
    }
    exclusive = {
        word: Group(word, show=False, validator=LimitedChoice())
        for word in {option.excludes for option in declared} - {""}
    }
    parameters = []
    for item in declared:
        kind: Any = inspect.Parameter.KEYWORD_ONLY
        hint: Any = Any
        if item.positional and item.several:
            kind = inspect.Parameter.VAR_POSITIONAL
        elif item.positional:
            kind = inspect.Parameter.POSITIONAL_ONLY
        elif item.several or item.parse is None:
            hint = list[Any] if item.several else bool
        listed = [groups["" if item.common else item.heading]]
        listed += [exclusive[item.excludes]] if item.excludes else []
        hint = Annotated[hint, _parameter(item, tuple(listed), texts)]
        needed = item.needed or kind is inspect.Parameter.VAR_POSITIONAL
        default = inspect.Parameter.empty if needed else item.default
        parameters.append(inspect.Parameter(item.name, kind, default=default, annotation=hint))
    parameters.sort(key=lambda parameter: parameter.kind)

    def function(*values: Any, **named: Any) -> None:
        """Is not called: its parameters are read."""

    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def _parameter(option: Option, groups: tuple[Group, ...], texts: dict[str, str]) -> Parameter:
    """What cyclopts knows of the option."""
    parse = option.parse

    def convert(kind: type, tokens: Sequence[Token]) -> Any:
        assert parse is not None
        words = ["-" if token.value == _DASH else token.value for token in tokens]
        texts[option.name] = words[-1]
        try:
            values = tuple(parse(word) for word in words)
        except ValueError as error:
            raise _RefusedError(f"{option.shown}: {error}") from None
        return values if option.several and not option.positional else values[0]

    return Parameter(
        name=None if option.positional else [option.flag, *filter(None, [option.short])],
        converter=convert if parse else None,
        negative="",
        group=groups,
        help=option.about,
        show_default=False,
        metavar=option.metavar or ("" if parse is None else option.name.upper()),
        required=option.needed,
        allow_repeating=True if option.several else None,
    )


# -- values

_PREFIXES = ("", "K", "M", "G", "T")
_UNITS = {unit: 1000**power for power, unit in enumerate(_PREFIXES)} | {
    f"{unit}i": 1024**power for power, unit in enumerate(_PREFIXES) if unit
}
_SIZE = re.compile(r"(\d{1,40})(?:\.(\d{1,9}))?([KMGTkmgt]i?|)", re.ASCII)
_MOST = 1 << 48
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ns|us|ms|s|m|h)", re.ASCII)
_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_MOST_NS = 10**15
_STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def size(text: str) -> int:
    """A count with an optional suffix: K, M, G, T (thousands) or Ki, Mi, Gi, Ti (1,024s), in
    either case."""
    return _size(text, text, "a number such as 1M, 512K or 64Ki")


def byte_size(text: str) -> int:
    """A number of bytes: as `size`, and a B may follow (512GB, 512GiB)."""
    return _size(text, re.sub("[Bb]$", "", text), "bytes such as 512GB, 64GiB or 1T")


def _size(text: str, number: str, expected: str) -> int:
    match = _SIZE.fullmatch(number)
    if not match:
        raise ValueError(f"expected {expected}, found {text!r}")
    full, fraction, unit = match.groups()
    value = Fraction(f"{full}.{fraction or 0}") * _UNITS[unit[:1].upper() + unit[1:]]
    if value.denominator != 1:
        raise ValueError(f"expected a whole number, found {text!r}")
    if value > _MOST:
        raise ValueError(f"expected at most {_MOST}, found {text!r}")
    return int(value)


def at_least(
    least: int, parse: Callable[[str], int] = size, most: int | None = None
) -> Callable[[str], int]:
    """Returns a parser of sizes of `least` or more, up to `most`. parse: reads one size."""

    def read(text: str) -> int:
        value = parse(text)
        if value < least or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"{least} to {most}"
            raise ValueError(f"expected {bounds}, found {text!r}")
        return value

    return read


def between(least: int, most: int) -> Callable[[str], int]:
    """Returns a parser of sizes from `least` to `most`, both included."""
    return at_least(least, most=most)


def name(text: str) -> str:
    """The name of a file or folder. Refuses an empty name.

    `--replay "$SEQUENCE"` passes an empty name if SEQUENCE is not set; that must not count as no
    option.
    """
    if not text or "\0" in text:
        raise ValueError(f"expected a name, found {ascii(text) if text else 'none'}")
    return text


def output(text: str) -> str:
    """The name of a file to write. Every name of standard output is `-`."""
    return "-" if name(text) in _STDOUT else text


def ratio(text: str) -> Fraction:
    """An exact number of 0 or more."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
        raise ValueError(f"expected a number such as 2 or 0.5, found {text!r}")
    return Fraction(text)


def positive_ratio(text: str, most: int | None = None) -> Fraction:
    """An exact number above 0, up to `most`."""
    value = ratio(text)
    if not value:
        raise ValueError(f"expected a number above 0, found {text!r}")
    if most is not None and value > most:
        raise ValueError(f"expected at most {most}, found {text!r}")
    return value


def part(text: str) -> Fraction:
    """A part of a whole: above 0, at most 1."""
    return positive_ratio(text, 1)


def bandwidth(text: str) -> int:
    """Bytes per second, such as 50GB or 50GB/s. One without a unit is refused."""
    result = 0 if text[-1:].isdigit() else byte_size(text.removesuffix("/s"))
    if not result:
        raise ValueError(f"expected bytes per second such as 50GB, found {text!r}")
    return result


def duration_ns(text: str) -> int:
    """A time with its unit: ns, us, ms, s, m or h. Returns nanoseconds."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"expected a time with its unit such as 200us, 2s or 5m, found {text!r}")
    value = Fraction(match[1]) * _NANOSECONDS[match[2]]
    if value.denominator != 1 or value > _MOST_NS:
        raise ValueError(f"expected whole nanoseconds, at most 1,000,000 s, found {text!r}")
    return int(value)


# A parser with the name of what it reads, for help: option("...", *COUNT).
COUNT = at_least(1), "N"
COUNT_OR_0 = at_least(0), "N"
TOKENS = at_least(1), "TOKENS"
FILE = name, "FILE"
OUTPUT = output, "FILE"


@dataclass(frozen=True, slots=True)
class Names:
    """A parser of names that can list them. known: the names. package: of plugins to which users
    may add their own."""

    parse: Callable[[str], Any]
    known: Callable[[], Sequence[str]]
    package: str = ""

    def __call__(self, text: str) -> Any:
        return self.parse(text)


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


def listed(parse: Callable[[str], Any], most: int = 1000) -> Callable[[str], tuple[Any, ...]]:
    """Returns a parser of values between commas, each of which is kept once."""

    def read(text: str) -> tuple[Any, ...]:
        values = tuple(dict.fromkeys(parse(part.strip()) for part in text.split(",")))
        if len(values) > most:
            raise ValueError(f"expected at most {most} values, found {len(values)}")
        return values

    return read


def library(name: str, extra: str) -> Any:
    """The library. extra: that of the project which brings it. Raises CallerError without it."""
    try:
        return import_module(name)
    except ImportError:
        raise CallerError(
            f"expected the library {name}, found none; pip install 'hicache[{extra}]'"
        ) from None
