"""`hicache gpu-check`: runs all checks that need a GPU, and writes one report.

Contains the command, the choice of checks and the report. Does not contain a check (see
devices/gpu_checks). Does not import torch; the checks do, and they are imported only if there is a
GPU.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hicache import registry
from hicache.core.errors import CallerError

from ..devices.gpu_checks.base import Outcome, Settings
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_whole
from ..terminal.rows import option

CHECKS = "traces.devices.gpu_checks"
SUMMARY = "run all checks that need a GPU, and write one report"
GROUP = "devices"
FAILED = 1
_DEFAULTS = Settings()


@dataclass(frozen=True)
class Options(OptionRecord):
    only: tuple[str, ...] = option(
        lambda: f"run this check alone; may be repeated ({', '.join(registry.names(CHECKS))})",
        read.entry(CHECKS),
        "CHECK",
        several=True,
        default=(),
    )
    pages: int = option(
        "number of page round trips in the SHA-256 check", *read.COUNT, default=_DEFAULTS.pages
    )
    repeats: int = option(
        "number of measurements of each time; the median is used",
        *read.COUNT,
        default=_DEFAULTS.repeats,
    )
    seed: int = option("seed of the random choice of pages", read.at_least(0), default=0)
    output: str = option(
        "write the report to this file as JSON", *read.OUTPUT, short="-o", default="gpu-check.json"
    )
    markdown: str = option(
        "write the report to this file as a section for docs/gpu.md",
        *read.OUTPUT,
        default="gpu-check.md",
    )


def run(options: Options, command: str) -> int:
    """Returns 0 if every check passed, 1 otherwise. Raises CallerError if there is no GPU."""
    machine = hardware()
    check_outputs({}, output=options.output, markdown=options.markdown)
    settings = Settings(options.pages, options.repeats, options.seed)
    chosen = list(dict.fromkeys(options.only or registry.names(CHECKS)))
    results: dict[str, dict[str, Any]] = {}
    for name in chosen:
        print(f"{name}: {registry.load(CHECKS, name).SUMMARY} ...", file=sys.stderr, flush=True)
        results[name] = run_check(name, settings)
        print(f"{name}: {verdict(results[name])}", file=sys.stderr, flush=True)
    report = {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "checks": results,
    }
    write_whole(options.output, [json.dumps(report, indent=2), "\n"])
    write_whole(options.markdown, markdown(report))
    return 0 if all(result["passed"] for result in results.values()) else FAILED


def hardware() -> dict[str, str]:
    """The GPU and its software. Raises CallerError with one line for what is missing."""
    try:
        device = registry.load("hicache.devices", "cuda")
        probe = registry.load("traces.devices.probes", "cuda")
    except ModuleNotFoundError as error:
        raise CallerError(
            f"gpu-check: expected the package {error.name}, found none; "
            "install a torch built for CUDA (in a clone: .venv/bin/pip install -e '.[torch]')"
        ) from None
    missing = device.unusable()
    if missing:
        raise CallerError(f"gpu-check: {missing}")
    machine = {name: str(value) for name, value in probe.machine().items()}
    return {**machine, "kernel": platform.release()}


def run_check(name: str, settings: Settings) -> dict[str, Any]:
    """The outcome of a check and its time. An exception is a fault of this check alone."""
    started = time.monotonic()
    try:
        outcome: Outcome = registry.load(CHECKS, name).run(settings)
    except Exception as error:
        # the report must show the error
        text = str(error).splitlines() or [""]
        outcome = Outcome([], [f"{type(error).__name__}: {text[0]}"])
    document = outcome.as_document()
    return {**document, "seconds": round(time.monotonic() - started, 1)}


def verdict(result: dict[str, Any]) -> str:
    """The result of a check in one line."""
    short = [figure["name"] for figure in result["figures"] if not figure["reached"]]
    complaints = [*result["faults"], *(f"not reached: {name}" for name in short)]
    return "passed" if result["passed"] else f"FAILED ({'; '.join(complaints)})"


def markdown(report: dict[str, Any]) -> list[str]:
    """The report as Markdown, with all figures, also those that missed their target."""
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    lines = [f"## {report['date']}", "", machine, "", f"`{report['command']}`", ""]
    for name, result in report["checks"].items():
        lines += [f"### {name}: {verdict(result)}", "", f"{result['seconds']} s", ""]
        if result["figures"]:
            lines += ["| figure | value | at least | |", "|---|---|---|---|"]
            lines += [_row(figure) for figure in result["figures"]]
            lines.append("")
    return [f"{line}\n" for line in lines]


def _row(figure: dict[str, Any]) -> str:
    least = "" if figure["least"] is None else _number(figure["least"])
    reached = "" if figure["least"] is None else ("reached" if figure["reached"] else "**missed**")
    value = f"{_number(figure['value'])} {figure['unit']}".strip()
    return f"| {figure['name']} | {value} | {least} | {reached} |"


def _number(value: float) -> str:
    return re.sub(r"\.?0+$", "", f"{value:.3f}") if value % 1 else str(int(value))
