"""What changed between replays: settings and figures side by side, and the cause where it is sure.

Reads the documents of `replay` and `size`, reports (JSON or HTML) and the lines of a sweep; a
figure that a document does not have is None. A change is put down to an option only if it is the
only one that differs, and the trace and the version are the same: a replay has no chance in it, so
then nothing else can have caused it. Settings that follow from an option are shown, and not
counted.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from hicache.core.errors import CallerError
from hicache.files import parsed, show

from .html.document import KIND as REPORT
from .html.document import SWEEP, checked, document_text, objects
from .html.page import NONE, count, percent, reason_name, seconds, short
from .replaying.options import ReplayOptions
from .results.record import ExpectedError, Figures, Int, Request, Result, TraceFigures, record_of
from .results.record import Variant as Replayed
from .terminal.streams import name as shown

SCHEMA = 1
WHAT = "document of hicache replay, size or sweep, or a report"
MOST = 10  # requests and changes in a table
Rows = list[list[str]]

# (name, in words, unit, place in the record of a replay), in the order of the table.
FIGURES = (
    ("hit_rate", "hit rate", "rate", "whole.hit_rate"),
    ("device_rate", "  device", "rate", "whole.hit_tokens.device"),
    ("host_rate", "  host", "rate", "whole.hit_tokens.host"),
    ("storage_rate", "  storage", "rate", "whole.hit_tokens.storage"),
    ("lost_rate", "lost", "rate", "whole.lost_tokens"),
    ("ceiling_rate", "ceiling", "rate", "whole.ceiling_rate"),
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


class _Reasons(Struct, frozen=True):
    lost_by_reason: Mapping[str, Int]


class _Point(Result, frozen=True, kw_only=True):
    """A replay in a document, or in a line of a sweep."""

    hicache_version: str = ""
    command: str = ""
    label: str | None = None
    complete: bool | None = None
    variant: _Reasons | None = None


class Side(Struct, frozen=True, kw_only=True):
    """One replay.

    figures: by name, see FIGURES
    lost_by_reason: as rates of the prompt tokens; None where the document has no reasons
    """

    path: str
    label: str
    version: str
    command: str
    trace: TraceFigures
    found: Figures
    figures: dict[str, float | None]
    lost_by_reason: Mapping[str, float] | None

    @property
    def error(self) -> ExpectedError | None:
        return self.found.expected_error

    @property
    def options(self) -> Mapping[str, Any] | None:
        """What was given for the run, by option; None if it was not one replay. A document without
        them has its command line."""
        recorded: Mapping[str, Any] | None = getattr(self.found, "options", None)
        if recorded is not None:
            return recorded
        if not re.match(r"\S*hicache replay\b", self.command) or "--config" in self.command:
            return None
        try:
            return ReplayOptions.read(shlex.split(self.command)[2:]).repeat
        except (CallerError, ValueError):  # of another version
            return None


class Setting(Struct, frozen=True):
    """A setting that differs.

    values: on each side
    counts: whether it may be a cause
    """

    name: str
    values: Sequence[Any]
    counts: bool


class Changed(Struct, frozen=True):
    """One request on both sides; times are null without a clock."""

    request: int
    input_tokens: int
    hit_tokens: tuple[int, int]
    ended_by: tuple[str, str]
    ttft_s: tuple[float, float] | None
    queue_s: tuple[float, float] | None


class EndedBy(Struct, frozen=True):
    """What ended hits on each side, where it changed."""

    before: str
    after: str
    requests: int


class Changes(Struct, frozen=True):
    """Requests that are in both files of `--requests`.

    more, fewer: that hit more, or fewer, tokens
    most: that changed most, by time to first token, or by hits where there is no clock
    ended: the commonest first
    """

    requests: int
    more: int
    fewer: int
    most: Sequence[Changed]
    ended: Sequence[EndedBy]


# -- reading


def read_sides(path: str) -> list[Side]:
    """The replays of a file, in its order. Raises CallerError with one line."""
    first, *points = objects(path, document_text(path, WHAT), WHAT)
    inside = first.get("report")  # of a document that has its report inside
    report = first if first.get("kind") == REPORT else inside if isinstance(inside, dict) else None
    if report is not None:
        whole = checked(path, report)
        trace = record_of(TraceFigures, whole["trace"], path)
        variants = [record_of(Replayed, one, path) for one in whole["variants"]]
        version = str(whole["hicache_version"])
        return [_of_variant(path, version, trace, one) for one in variants]
    _check_head(path, first)
    if first.get("kind") == SWEEP:
        header = {"trace": first.get("trace"), "hicache_version": first["hicache_version"]}
        points = [header | one for one in points if one.get("kind") != SWEEP]
        return [_of_replay(path, one) for one in points if one.get("complete") is not False]
    if points:
        raise CallerError(f"{path}: expected a {WHAT}, found JSON lines of another kind; name one")
    return [_of_replay(path, first)]


def _check_head(path: str, head: Mapping[str, Any]) -> None:
    known = head.get("kind") == SWEEP or "whole" in head
    if not known or "hicache_version" not in head:
        keys = ", ".join(list(head)[:3])[:60]
        raise CallerError(f"{path}: expected a {WHAT}, found an object with {keys}; name another")
    if (schema := head.get("schema")) != SCHEMA:
        raise CallerError(
            f"{path}: expected schema {SCHEMA}, found {show(schema)}; run it again with this "
            "version"
        )


def _check_complete(path: str, label: str, complete: object) -> None:
    if complete is False:
        raise CallerError(
            f"{path}: expected whole replays, found {label}, which was interrupted; run it again"
        )


def _of_variant(path: str, version: str, trace: TraceFigures, found: Replayed) -> Side:
    _check_complete(path, found.label, found.complete)
    side = _side(path, found.label, version, "", trace, found, found.lost_by_reason)
    for way in ("read", "written") if found.moved else ():
        side.figures[f"storage_{way}_bytes"] = sum(getattr(found.moved, f"storage_{way}_bytes"))
    return side


def _of_replay(path: str, document: Mapping[str, Any]) -> Side:
    found = record_of(_Point, document, path)
    label, lost = found.label or path, found.variant.lost_by_reason if found.variant else None
    _check_complete(path, label, found.complete)
    if found.storage:
        lost = {reason: one.tokens for reason, one in found.storage.lost_tokens.items()}
    return _side(path, label, found.hicache_version, found.command, found.trace, found, lost)


def _side(
    path: str,
    label: str,
    version: str,
    command: str,
    trace: TraceFigures,
    found: Figures,
    lost: Mapping[str, int] | None,
) -> Side:
    return Side(
        path=path,
        label=label,
        version=version,
        command=command,
        trace=trace,
        found=found,
        figures={name: _at(found, place) for name, _, _, place in FIGURES},
        lost_by_reason=lost and {name: found.whole.rate(tokens) for name, tokens in lost.items()},
    )


def _at(found: Figures, place: str) -> float | None:
    """A figure of the record; None for one that it has not. Tokens are rates of the prompts."""
    value: Any = found
    for name in place.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    if value is not None and place.startswith("whole.") and not place.endswith("_rate"):
        return found.whole.rate(value)
    return value  # type: ignore[no-any-return]


# -- what changed


def settings(sides: Sequence[Side]) -> list[Setting]:
    """The settings that differ on any side, those that may be causes first: options of the command
    lines where all are known, else all settings."""
    options = [side.options for side in sides]
    typed = [one for one in options if one is not None]
    by_option = len(typed) == len(options) and bool(_differing(typed))
    found: list[Setting] = []
    if by_option:
        for name, values in _differing(typed).items():
            found.append(Setting(name, values, name not in _WITHOUT_EFFECT))
    for name, values in _differing([side.found.config for side in sides]).items():
        if name.replace("_", "-") not in {one.name for one in found}:
            found.append(Setting(name, values, not by_option and name not in _WITHOUT_EFFECT))
    return sorted(found, key=lambda one: not one.counts)


def _differing(sides: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for side in sides for name in side)
    values = {name: [side.get(name) for side in sides] for name in names}
    return {name: given for name, given in values.items() if given.count(given[0]) < len(given)}


def warnings(sides: Sequence[Side]) -> list[str]:
    """What makes a comparison weaker, one sentence each."""
    found = []
    versions = list(dict.fromkeys(side.version for side in sides))
    if len(versions) > 1:
        found.append(f"The replays were made by versions {', '.join(map(shown, versions))}.")
    if len({side.trace.path for side in sides}) > 1:
        found.append("The documents name different files of equal size as their trace.")
    if len({side.found.whole.input_tokens for side in sides}) > 1:
        found.append("The replays served different requests (--skip-too-large).")
    if len({str(side.found.config.get("mode")) for side in sides}) > 1:
        found.append("The replays have different modes: `hits` has no times, and a lower ceiling.")
    return found


def cause(one: Side, other: Side) -> str:
    """What the changes from one side to the other come from, as far as the documents show it."""
    if one.found.digest == other.found.digest and one.figures == other.figures:
        return "nothing changed: the same decisions at the same times"
    differing = [setting for setting in settings((one, other)) if setting.counts]
    if warnings((one, other)):
        return "not known: more than settings differs (see the warnings)"
    if not differing:
        return "not known: no setting that the documents show differs"
    if len(differing) > 1:
        names = ", ".join(shown(setting.name) for setting in differing)
        return f"not known: {len(differing)} settings differ ({names}); change one at a time"
    before, after = map(told_value, differing[0].values)
    return f"{shown(differing[0].name)}: {before} to {after}, and nothing else"


def told_value(given: object) -> str:
    """A setting's value in words."""
    if given is None:
        return "not set"
    if isinstance(given, bool):
        return "yes" if given else "no"
    if isinstance(given, int | float):
        return f"{given:,}"
    return shown(", ".join(map(str, given)) if isinstance(given, list) else str(given))


def compared(paths: tuple[str, str], one: Side, other: Side) -> Changes:
    """The requests of both sides, from their files of `--requests`. Raises CallerError for files of
    other replays."""
    first, second = _requests(paths[0], one), _requests(paths[1], other)
    both = [number for number in first if number in second]
    if not both:
        raise CallerError(
            f"{paths[1]}: expected requests of the same trace as {paths[0]}, found none of them; "
            "name the files of both replays"
        )
    changed = [_changed(first[number], second[number]) for number in both]
    ended = Counter(item.ended_by for item in changed if item.ended_by[0] != item.ended_by[1])
    return Changes(
        requests=len(both),
        more=sum(item.hit_tokens[1] > item.hit_tokens[0] for item in changed),
        fewer=sum(item.hit_tokens[1] < item.hit_tokens[0] for item in changed),
        most=sorted(changed, key=_size)[:MOST],
        ended=[EndedBy(*pair, times) for pair, times in ended.most_common(MOST)],
    )


def _size(item: Changed) -> tuple[float, int]:
    before, after = item.ttft_s or item.hit_tokens
    return -abs(after - before), item.request


def _changed(one: Request, other: Request) -> Changed:
    def both(before: int | None, after: int | None) -> tuple[float, float] | None:
        return None if before is None or after is None else (before / 1e9, after / 1e9)

    return Changed(
        request=one.request,
        input_tokens=one.input_tokens,
        hit_tokens=(one.hit_tokens.all, other.hit_tokens.all),
        ended_by=(_ended_by(one), _ended_by(other)),
        ttft_s=both(one.ttft_ns, other.ttft_ns),
        queue_s=both(one.queue_ns, other.queue_ns),
    )


def _ended_by(one: Request) -> str:
    return one.lost_to if isinstance(one.lost_to, str) else one.hit_ended_by


def _requests(path: str, side: Side) -> dict[int, Request]:
    """The records by request; their hits must be those of the side's document."""
    found: dict[int, Request] = {}
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                record = record_of(Request, _parsed(path, number, line), f"{path}:{number}")
                found[record.request] = record
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise CallerError(
            f"{path}: expected a file of `hicache replay --requests`, found: {reason}; name another"
        ) from None
    hits = sum(one.hit_tokens.all for one in found.values())
    total = sum(one.input_tokens for one in found.values())
    rate = side.figures["hit_rate"] or 0.0
    if not total or abs(hits / total - rate) > 1e-9:
        raise CallerError(
            f"{path}: expected the requests of {side.label}, with a hit rate of {rate:.6f}, found "
            f"{hits / total if total else 0:.6f}; name the files in the order of the documents"
        )
    return found


def _parsed(path: str, number: int, line: str) -> object:
    try:
        return parsed(line)
    except ValueError:
        raise CallerError(
            f"{path}:{number}: expected one JSON object a line, found {show(line)}; name a file "
            "of `hicache replay --requests`"
        ) from None


# -- as a document, and as tables


class Comparison(Struct, frozen=True):
    """The document of `hicache compare`, with `HEAD`, `kind` and `warnings[]`.

    sides: `path`, `label`, `hicache_version`, `digest` and `expected_error` of each; the first is
        what the others are compared with
    figures: of each side, with its unit in its name; or null
    lost_by_reason: of each side, rate of the prompt tokens lost to it
    causes: by label of the other sides
    """

    sides: Sequence[Mapping[str, Any]]
    settings: Sequence[Setting]
    figures: Mapping[str, Sequence[float | None]]
    lost_by_reason: Mapping[str, Sequence[float]]
    requests: Changes | None
    causes: Mapping[str, str]


def comparison(sides: Sequence[Side], requests: Changes | None) -> Comparison:
    return Comparison(
        sides=[
            {
                "path": side.path,
                "label": side.label,
                "hicache_version": side.version,
                "digest": side.found.digest,
                "expected_error": side.error,
            }
            for side in sides
        ],
        settings=settings(sides),
        figures={name: values for name, _, _, values in _rows_of(sides)},
        lost_by_reason=_lost(sides),
        requests=requests,
        causes={side.label: cause(sides[0], side) for side in sides[1:]},
    )


def tables(found: Comparison, sides: Sequence[Side]) -> list[tuple[str, list[str], Rows]]:
    """(title, columns, rows) of every table that has rows."""
    labels = [side.label for side in sides]
    changed = ["change"] if len(sides) == 2 else []
    differing = [
        [one.name if one.counts else f"({one.name})", *map(told_value, one.values)]
        for one in found.settings
    ]
    figures: Rows = []
    for name, words, unit, values in _rows_of(sides):
        figures.append(_row(words, values, unit))
        if name == "lost_rate":
            lost = found.lost_by_reason.items()
            figures += [_row(f"  {reason_name(one)}", rates, "rate") for one, rates in lost]
    made = [
        ("Settings that differ", ["", *labels], differing),
        ("Figures", ["", *labels, *changed], figures),
    ]
    if (requests := found.requests) is not None:
        title = f"Requests that changed most, of {requests.requests:,}"
        title += f" ({requests.more:,} hit more, {requests.fewer:,} hit less)"
        columns = ["request", "input", "hits", "hit ended by", "TTFT", "of it queue"]
        made.append((title, columns, [_request_row(one) for one in requests.most]))
        ended = [
            [_pair(_ended(one.before), _ended(one.after)), f"{one.requests:,}"]
            for one in requests.ended
        ]
        made.append(("What ended a hit", ["before and after", "requests"], ended))
    return [one for one in made if one[2]]


def _rows_of(sides: Sequence[Side]) -> list[tuple[str, str, str, list[float | None]]]:
    """(name, words, unit, values) of each figure that any side has."""
    each = [
        (name, words, unit, [side.figures.get(name) for side in sides])
        for name, words, unit, _ in FIGURES
    ]
    return [one for one in each if any(one[3])]


def _lost(sides: Sequence[Side]) -> dict[str, list[float]]:
    """The rates of each reason of loss, where every side has them."""
    known = [side.lost_by_reason for side in sides if side.lost_by_reason is not None]
    reasons = dict.fromkeys(reason for rates in known for reason in rates)
    if len(known) < len(sides):
        return {}
    return {reason: [rates.get(reason, 0.0) for rates in known] for reason in reasons}


def _row(words: str, values: Sequence[float | None], unit: str) -> list[str]:
    changed = [_change(values[0], values[1], unit)] if len(values) == 2 else []
    return [words, *(_value(one, unit) for one in values), *changed]


def _change(one: float | None, other: float | None, unit: str) -> str:
    """The difference with its sign."""
    if one is None or other is None:
        return NONE
    sign, size = "+" if other > one else "-" if other < one else "", abs(other - one)
    return f"{sign}{size * 100:.1f} points" if unit == "rate" else f"{sign}{_value(size, unit)}"


def _value(figure: float | None, unit: str) -> str:
    if unit == "rate":
        return percent(figure)
    if unit == "s":
        return seconds(figure)
    return short(figure, "B") if unit == "bytes" else count(figure)


def _request_row(one: Changed) -> list[str]:
    times = [
        NONE if pair is None else _pair(*map(seconds, pair)) for pair in (one.ttft_s, one.queue_s)
    ]
    hits = _pair(*(f"{tokens:,}" for tokens in one.hit_tokens))
    ended = _pair(*map(_ended, one.ended_by))
    return [f"{one.request:,}", f"{one.input_tokens:,}", hits, ended, *times]


def _pair(before: str, after: str) -> str:
    return before if before == after else f"{before} to {after}"


def _ended(reason: str) -> str:
    return "all hit" if reason == "complete" else reason_name(reason)
