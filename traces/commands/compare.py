"""`hicache compare`: what changed between replays: settings and figures side by side, and the cause
where it is sure. The first replay is what the others are compared with.

A change is put down to an option only if it is the only one that differs, and the trace and the
version are the same: a replay has no chance in it, so then nothing else can have caused it.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from hicache.core.errors import CallerError

from ..error_bars import together
from ..html import Report, check_same_trace, named, read_report
from ..replaying.options import HOST_SIZES
from ..reporting import NONE, count, percent, reason_name, seconds, short
from ..results.record import ExpectedError, Result, document, head, record_of
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import check_outputs, write_json
from ..terminal.streams import name as shown
from ..terminal.streams import print_error
from ..terminal.tables import console, table

_MOST_SIDES = 64
# (name, in words, unit, place in the record of a replay), in the order of the table.
FIGURES = (
    ("hit_rate", "hit rate", "rate", "total.hit_rate"),
    ("device_rate", "  device", "rate", "total.hit_tokens.device"),
    ("host_rate", "  host", "rate", "total.hit_tokens.host"),
    ("storage_rate", "  storage", "rate", "total.hit_tokens.storage"),
    ("lost_rate", "lost", "rate", "total.lost_tokens"),
    ("ceiling_rate", "ceiling", "rate", "total.ceiling_rate"),
    ("ttft_mean_s", "TTFT, mean", "s", "latency_s.ttft.mean"),
    ("queue_mean_s", "  queue", "s", "latency_s.queue.mean"),
    ("load_mean_s", "  load", "s", "latency_s.load.mean"),
    ("compute_mean_s", "  compute", "s", "latency_s.compute.mean"),
    ("ttft_p50_s", "TTFT, p50", "s", "latency_s.ttft.p50"),
    ("ttft_p90_s", "TTFT, p90", "s", "latency_s.ttft.p90"),
    ("ttft_p99_s", "TTFT, p99", "s", "latency_s.ttft.p99"),
    ("tpot_p50_s", "TPOT, p50", "s", "latency_s.tpot.p50"),
    ("running_mean", "running at once, mean", "count", "load.running_mean"),
    ("tokens_per_s", "output tokens/s", "count", "output.tokens_per_s"),
    ("attained_rate", "attained SLO", "rate", "slo.attained_rate"),
    ("goodput_requests_per_s", "goodput, requests/s", "count", "slo.goodput_requests_per_s"),
    ("d2h_bytes", "device to host", "bytes", "transfers.d2h.bytes_total"),
    ("h2d_bytes", "host to device", "bytes", "transfers.h2d.bytes_total"),
    ("storage_read_bytes", "storage to host", "bytes", "storage.read.bytes_total"),
    ("storage_written_bytes", "host to storage", "bytes", "storage.written.bytes_total"),
    ("evicted_device_pages", "evicted from device, pages", "count", "evicted_pages.device"),
    ("evicted_host_pages", "evicted from host, pages", "count", "evicted_pages.host"),
    ("preempted", "preempted", "count", "preempted"),
)
# Options that no figure of a replay depends on.
_WITHOUT_EFFECT = ("check",)
# of an option, the value in `config` where it has another name
_RESOLVED = {"eviction": "eviction_policy"} | dict.fromkeys(HOST_SIZES, "host_pages")


@dataclass(frozen=True)
class Options(OptionRecord):
    documents: tuple[str, ...] = option(
        "JSON of replay, size or sweep, or a report; the first replay in them is what the "
        "others are compared with",
        read.name,
        "DOCUMENT",
        positional=True,
        several=True,
    )
    json: str | None = option("also write the figures; - is stdout", *read.OUTPUT)


class Side(Struct, frozen=True):
    """One replay."""

    path: str
    label: str
    hicache_version: str
    digest: str
    expected_error: ExpectedError | None


class Setting(Struct, frozen=True):
    """A setting that differs, with its value on each side."""

    name: str
    values: Sequence[Any]


class Comparison(Struct, frozen=True):
    """The document of `hicache compare`, with [the head](#all-documents), `kind` and `warnings[]`.

    sides: the first is what the others are compared with
    figures: of each side, with its unit in its name; or null
    lost_by_reason: of each side, rate of the prompt tokens lost to it
    causes: by label of the other sides
    """

    sides: Sequence[Side]
    settings: Sequence[Setting]
    figures: Mapping[str, Sequence[float | None]]
    lost_by_reason: Mapping[str, Sequence[float]]
    causes: Mapping[str, str]


def run(options: Options, command: str) -> int:
    inputs = {f"input {number}": path for number, path in enumerate(options.documents, 1)}
    check_outputs(inputs, json=options.json)
    paths = []
    for path in options.documents:
        report = record_of(Report, read_report(path), path)
        paths += [(path, report, result) for result in report.variants]
    results = [result for _, _, result in paths]
    if not 2 <= len(results) <= _MOST_SIDES:
        raise CallerError(
            f"compare: expected 2 to {_MOST_SIDES} replays, found {len(results)}; name "
            f"{'another document' if len(results) < 2 else 'fewer'}"
        )
    sides = []
    labels = named([result.label for result in results])
    for label, (path, report, result) in zip(labels, paths, strict=True):
        if result.interrupted:
            raise CallerError(
                f"{path}: expected whole replays, found {label}, which was interrupted; run it "
                "again"
            )
        check_same_trace(path, result.trace, results[0].trace, paths[0][0])
        version, error = report.hicache_version, result.expected_error
        sides.append(Side(path, label, version, result.digest, error))
    weak = warnings(sides, results)
    actual = comparison(sides, results)
    for warning in weak:
        print_error(f"warning: {warning}")
    out = console(sys.stderr if options.json == "-" else sys.stdout)
    for title, columns, rows in tables(actual):
        made = table(title, *map(shown, columns))
        for row in rows:
            made.add_row(*map(shown, row))
        out.print(made)
    out.print()
    for label, cause in actual.causes.items():
        out.print(f"Cause{f' of {shown(label)}' * (len(sides) > 2)}: {cause}.")
    for line in together(result.expected_error for result in results):
        out.print(line)
    if options.json:
        full = head(command, True) | {"kind": "compare", **document(actual), "warnings": weak}
        write_json(options.json, full)
    return 0


def comparison(sides: Sequence[Side], results: Sequence[Result]) -> Comparison:
    figures = {name: [_at(result, place) for result in results] for name, _, _, place in FIGURES}
    reasons = dict.fromkeys(reason for result in results for reason in result.lost_by_reason)
    return Comparison(
        sides=sides,
        settings=settings(results),
        figures={name: values for name, values in figures.items() if any(values)},
        lost_by_reason={
            reason: [result.total.rate(result.lost_by_reason.get(reason, 0)) for result in results]
            for reason in reasons
        },
        causes={
            side.label: _cause((sides[0], side), (results[0], result))
            for side, result in zip(sides[1:], results[1:], strict=True)
        },
    )


def _at(result: Result, place: str) -> float | None:
    """A figure of the record; None for one that it has not. Tokens are rates of the prompts."""
    value: Any = result
    for name in place.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    if value is not None and place.startswith("total.") and not place.endswith("_rate"):
        return result.total.rate(value)
    return value  # type: ignore[no-any-return]


def settings(results: Sequence[Result]) -> list[Setting]:
    """The settings that differ on any side: options that were given, where all sides have them, or
    all settings. An option that was given at its default is as one that was not given."""
    options = [result.options for result in results if result.options is not None]
    resolved = _differing(configs := [result.config for result in results])
    differing = _differing(options) if len(options) == len(results) else {}
    for name, values in list(differing.items()):
        key = name.replace("-", "_")
        key = _RESOLVED.get(key, key)
        if None in values and key in configs[0] and key not in resolved:
            del differing[name]
    named = (differing or resolved).items()
    return [Setting(*pair) for pair in named if pair[0] not in _WITHOUT_EFFECT]


def _differing(sides: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for side in sides for name in side)
    values = {name: [side.get(name) for side in sides] for name in names}
    return {name: each for name, each in values.items() if each.count(each[0]) < len(each)}


def warnings(sides: Sequence[Side], results: Sequence[Result]) -> list[str]:
    """What makes a comparison weaker, one sentence each."""
    versions = list(dict.fromkeys(side.hicache_version for side in sides))
    different = {
        f"The replays were made by versions {', '.join(map(shown, versions))}.": versions,
        "The documents name different files of equal size as their trace.": {
            result.trace.path for result in results
        },
        "The replays served different requests.": {result.total.input_tokens for result in results},
        "The replays have different modes: `hits` has no times, and a lower ceiling.": {
            str(result.config.get("mode")) for result in results
        },
    }
    return [text for text, values in different.items() if len(values) > 1]


def _cause(sides: tuple[Side, Side], results: tuple[Result, Result]) -> str:
    """What the changes from one side to the other come from, as far as the documents show it."""
    result, other = results
    if result.digest == other.digest and result.total == other.total:
        return "nothing changed: the same decisions at the same times"
    if warnings(sides, results):
        return "not known: more than settings differs (see the warnings)"
    differing = settings(results)
    if not differing:
        return "not known: no setting that the documents show differs"
    if len(differing) > 1:
        names = ", ".join(shown(setting.name) for setting in differing)
        return f"not known: {len(differing)} settings differ ({names}); change one at a time"
    before, after = map(_shown, differing[0].values)
    return f"{shown(differing[0].name)}: {before} to {after}, and nothing else"


def _shown(value: object) -> str:
    """A setting's value in words."""
    return "not set" if value is None else shown(str(value))


def tables(comparison: Comparison) -> list[tuple[str, list[str], list[list[str]]]]:
    """(title, columns, rows) of every table that has rows."""
    labels = [side.label for side in comparison.sides]
    differing = [[setting.name, *map(_shown, setting.values)] for setting in comparison.settings]
    figures = []
    for name, words, unit, _ in FIGURES:
        if name in comparison.figures:
            figures.append(_row(words, comparison.figures[name], unit))
        if name == "lost_rate":
            lost = comparison.lost_by_reason.items()
            figures += [_row(f"  {reason_name(text)}", rates, "rate") for text, rates in lost]
    changed = ["change"] if len(labels) == 2 else []
    made = [
        ("Settings that differ", ["", *labels], differing),
        ("Figures", ["", *labels, *changed], figures),
    ]
    return [pair for pair in made if pair[2]]


def _row(words: str, values: Sequence[float | None], unit: str) -> list[str]:
    row = [words, *(_value(value, unit) for value in values)]
    if len(values) != 2:
        return row
    number, other = values
    if number is None or other is None:
        return [*row, NONE]
    sign, size = "+" if other > number else "-" if other < number else "", abs(other - number)
    return [*row, sign + (f"{size * 100:.1f} points" if unit == "rate" else _value(size, unit))]


def _value(figure: float | None, unit: str) -> str:
    if unit == "rate":
        return percent(figure, 1)
    if unit == "s":
        return seconds(figure)
    return short(figure, "B") if unit == "bytes" else count(figure)
