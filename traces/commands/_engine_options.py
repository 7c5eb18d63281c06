"""The options of commands that run a real engine: which Python has it, and the small model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..engines.models import FAMILIES
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.rows import option

ENGINES = ("vllm",)


def of_family(default: str) -> Any:
    """The row of an option --family."""
    return option(
        lambda: "; ".join(f"{name}: {one.what}" for name, one in FAMILIES.items()),
        read.choice([*FAMILIES]),
        default=default,
    )


@dataclass(frozen=True)
class RealEngineOptions(OptionRecord):
    HEADING = "a real engine"

    engine: str | None = option(
        f"{', '.join(ENGINES)}: run this engine, with a small model of random weights",
        read.choice(ENGINES),
        "NAME",
    )
    python: str | None = option(
        "the Python that has the engine (default: $HICACHE_VLLM, or that of `make engines`)",
        read.name,
        "FILE",
    )
    family: str = of_family("llama")
