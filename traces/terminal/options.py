"""Reading of option values (sizes, ratios, bandwidths, names), and the record that they become.

Must not live here: which options exist (each command's and generator's own file).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Self

from hicache.core import registry

Unbounded = Literal["unbounded"]
UNBOUNDED: Unbounded = "unbounded"

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?(K|M|G|Ki|Mi|Gi|)", re.ASCII)
_MOST = 1 << 48


@dataclass(frozen=True, slots=True)
class OptionRecord:
    """What the options of a command or generator derive from: a frozen dataclass with a field for
    each option, by its name. Only the parser knows the defaults."""

    @classmethod
    def read(cls, found: argparse.Namespace) -> Self:
        """The record of what a parser found. A repeated option becomes a tuple."""
        values = vars(found).items()
        return cls(**{name: tuple(one) if isinstance(one, list) else one for name, one in values})


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """A host link's speed: `factor` times the profile's, or `bytes_per_s` where that is not 0."""

    factor: Fraction
    bytes_per_s: int = 0

    def __str__(self) -> str:
        return f"{self.bytes_per_s} B/s" if self.bytes_per_s else f"{float(self.factor):g}x"


def size(text: str) -> int:
    """A count with an optional suffix: K, M, G (thousands) or Ki, Mi, Gi (1,024s)."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(
            f"expected a number such as 1M, 512K or 64Ki, found {text!r}"
        )
    whole, fraction, unit = found.groups()
    value = Fraction(f"{whole}.{fraction or 0}") * _UNITS[unit]
    if value.denominator != 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}")
    if value > _MOST:
        raise argparse.ArgumentTypeError(f"expected at most {_MOST}, found {text!r}")
    return int(value)


def at_least(least: int) -> Callable[[str], int]:
    """A parser of sizes from `least` on."""

    def parse(text: str) -> int:
        value = size(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"expected at least {least}, found {text!r}")
        return value

    return parse


def between(least: int, most: int) -> Callable[[str], int]:
    """A parser of sizes from `least` to `most`."""

    def parse(text: str) -> int:
        value = size(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"expected {least} to {most}, found {text!r}")
        return value

    return parse


def name(text: str) -> str:
    """Of a file or folder: `--replay "$TAPE"` in a shell where TAPE is not set asks for nothing,
    and must not be taken for an option that is not there."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(
            f"expected a name, found {ascii(text) if text else 'none'}"
        )
    return text


def device_pages(text: str) -> int | Unbounded:
    """A number of pages, or `unbounded`."""
    return UNBOUNDED if text == UNBOUNDED else at_least(1)(text)


def ratio(text: str) -> Fraction:
    """A number of 0 or more, exact."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"expected a number such as 2 or 0.5, found {text!r}")
    return Fraction(text)


def bandwidth(text: str) -> Bandwidth:
    """A multiple of the profile's host link (0.5x), or bytes per second and direction (50GB)."""
    if text.endswith("x"):
        factor = ratio(text[:-1])
        if factor:
            return Bandwidth(factor)
    elif text.endswith("B"):
        bytes_per_s = size(text[:-1])
        if bytes_per_s:
            return Bandwidth(Fraction(1), bytes_per_s)
    raise argparse.ArgumentTypeError(
        f"expected a multiple above 0 such as 0.5x or bytes per second such as 50GB, found {text!r}"
    )


def entry(package: str, *also: str) -> Callable[[str], str]:
    """A name of a registry folder, or one of `also`."""
    return choice([*also, *registry.names(package)])


def choice(known: Sequence[str]) -> Callable[[str], str]:
    """One of these names, hyphens and underscores alike."""
    spelled = {name.replace("_", "-"): name for name in known}

    def parse(text: str) -> str:
        name = spelled.get(text.replace("_", "-"))
        if name is None:
            raise argparse.ArgumentTypeError(f"expected one of {', '.join(known)}, found {text!r}")
        return name

    return parse
