"""Parsers of option values (sizes, ratios, bandwidths, names), and the base of option records.

Does not define options; each command and each generator defines its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from hicache import registry
from hicache.core.errors import CallerError

from .rows import WITHOUT_SPACES as WITHOUT_SPACES
from .rows import OptionRecord as OptionRecord
from .rows import is_size as is_size

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
