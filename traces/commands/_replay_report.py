"""The HTML report of `hicache replay`: a document with one variant.

Does not draw; see traces/html.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..formats.base import Paged, Trace
from ..html.document import report
from ..html.prefixes import hot_prefixes
from ..html.render import render
from ..replaying.options import ReplayOptions
from ..replaying.run import Run
from ..reporting.outputs import File

# What a verdict has that only several replays show.
_NOTHING_COMPARED: dict[str, Any] = {
    "limits": [],
    "evidence": [],
    "buys": [],
    "best": None,
    "break_even": None,
}


def limits(variant: Mapping[str, Any]) -> dict[str, Any] | None:
    """The limits of `--slo` that the charts show; None without it."""
    slo = variant["slo"]
    return None if slo is None else {name: slo.get(name) for name in ("ttft_s", "tpot_s")}


def html_file(
    options: ReplayOptions,
    command: str,
    trace: Trace,
    paged: Paged,
    run: Run,
    variant: Mapping[str, Any],
    warnings: Sequence[str],
) -> Callable[[Sequence[str]], list[File]]:
    """A function from the sentences of the replay to its HTML file, if it was asked for."""

    def made(told: Sequence[str]) -> list[File]:
        if options.html is None:
            return []
        found = report(
            f"Replay of {Path(trace.path).name}",
            command,
            {
                "path": trace.path,
                "format": trace.format,
                "requests": len(trace.jobs),
                "input_tokens": trace.jobs.input_tokens,
            },
            [variant],
            verdict={"sentences": list(told), **_NOTHING_COMPARED},
            slo=limits(variant),
            prefixes=hot_prefixes(paged, run.account) if trace.identity else None,
            warnings=warnings,
            complete=not run.interrupted,
        )
        return [(options.html, [render(found)])]

    return made
