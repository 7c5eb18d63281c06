"""What changed between two replays, in figures and in sentences, and what may be called its cause.

A sentence states figures of both sides and nothing else. A change is put down to a setting only if
it is the only one that differs, and the trace and the version are the same: a replay has no chance
in it, so then nothing else can have caused it. Does not read files; see sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..html.page import NONE, count, percent, reason_name, seconds, short
from ..terminal.text import name as shown
from .sides import FIGURES, Side

# Settings that follow from another one: they are shown, and not counted as differences.
_FOLLOWS = {
    "device_tokens": "device_pages",
    "host_tokens": "host_pages",
    "exchange_pages": "exclusive",
    "page_size_from": "page_size",
    "weight_bytes_per_rank": "weight_bytes_total",
    "swa_host_tokens": "host_pages",
    "mamba_host_states": "host_pages",
}
# Settings that no figure of a replay depends on.
_WITHOUT_EFFECT = {"check"}
_LEAST_RATE = 0.0005
_LEAST_SHARE = 0.01  # of a time, before it counts as changed


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that differs. values: of each side. counts: whether it may be a cause."""

    name: str
    values: tuple[Any, ...]
    counts: bool


def settings(sides: Sequence[Side]) -> list[Setting]:
    """The settings that differ on any side, those that may be causes first."""
    names = dict.fromkeys(name for side in sides for name in side.config)
    differing = {
        name: tuple(side.config.get(name) for side in sides)
        for name in names
        if any(side.config.get(name) != sides[0].config.get(name) for side in sides)
    }
    found = [
        Setting(
            name,
            values,
            name not in _WITHOUT_EFFECT and _FOLLOWS.get(name) not in differing,
        )
        for name, values in differing.items()
    ]
    return sorted(found, key=lambda one: not one.counts)


def warnings(sides: Sequence[Side]) -> list[str]:
    """What makes a comparison weaker, one sentence each."""
    found = []
    versions = list(dict.fromkeys(side.version for side in sides))
    if len(versions) > 1:
        found.append(
            f"The replays were made by versions {', '.join(map(shown, versions))}: what changed "
            "may come from the program."
        )
    if len({side.trace["path"] for side in sides}) > 1:
        found.append("The documents name different files of equal size as their trace.")
    if len({side.input_tokens for side in sides} - {None}) > 1:
        found.append("The replays served different requests (--skip-too-large).")
    modes = {str(side.config.get("mode")) for side in sides}
    if len(modes) > 1:
        found.append("The replays have different modes: `hits` has no times, and a lower ceiling.")
    return found


def sentences(one: Side, other: Side) -> list[str]:
    """What changed from one side to the other, and why as far as the figures show it."""
    if one.digest == other.digest and one.figures == other.figures:
        return ["Nothing changed: both replays took the same decisions at the same times."]
    found = [_hits(one, other), *_losses(one, other), *_times(one, other), *_goodput(one, other)]
    return [*found, _cause(one, other)]


def change(one: float | None, other: float | None, unit: str) -> str:
    """The difference in words, with its sign."""
    if one is None or other is None:
        return NONE
    difference = other - one
    sign = "+" if difference > 0 else "-" if difference < 0 else ""
    size = abs(difference)
    if unit == "rate":
        return f"{sign}{size * 100:.1f} points"
    return f"{sign}{value(size, unit)}"


def value(figure: float | None, unit: str) -> str:
    if unit == "rate":
        return percent(figure)
    if unit == "s":
        return seconds(figure)
    return short(figure, "B") if unit == "bytes" else count(figure)


def _hits(one: Side, other: Side) -> str:
    before, after = one.figures["hit_rate"], other.figures["hit_rate"]
    if not _moved(before, after):
        return f"The hit rate is the same: {percent(after)}."
    parts = []
    for tier in ("device", "host", "storage"):
        pair = one.figures.get(f"{tier}_rate"), other.figures.get(f"{tier}_rate")
        if _moved(*pair):
            parts.append(f"{change(*pair, 'rate')} from {tier} hits")
    told = f": {' and '.join(parts)}" if parts else ""
    return (
        f"Hit rate {percent(before)} to {percent(after)} ({change(before, after, 'rate')}){told}."
    )


def _losses(one: Side, other: Side) -> list[str]:
    before, after = one.figures["lost_rate"], other.figures["lost_rate"]
    found = []
    if _moved(before, after):
        assert before is not None
        assert after is not None
        way = "fell" if after < before else "rose"
        told = f"Tokens lost {way} from {percent(before)} to {percent(after)} of the prompts"
        found.append(f"{told}{_reasons(one, other)}.")
    ceilings = one.figures["ceiling_rate"], other.figures["ceiling_rate"]
    if _moved(*ceilings):
        found.append(
            f"What any cache could hit changed, too: from {percent(ceilings[0])} to "
            f"{percent(ceilings[1])}."
        )
    return found


def _reasons(one: Side, other: Side) -> str:
    if one.lost_by_reason is None or other.lost_by_reason is None:
        return ""
    changed = []
    first, second = one.lost_by_reason, other.lost_by_reason
    for reason in dict.fromkeys([*first, *second]):
        before, after = first.get(reason, 0.0), second.get(reason, 0.0)
        if _moved(before, after):
            told = f"{shown(reason_name(reason))} {percent(before)} to {percent(after)}"
            changed.append((-abs(after - before), told))
    return f" ({', '.join(told for _, told in sorted(changed))})" if changed else ""


def _times(one: Side, other: Side) -> list[str]:
    before, after = one.figures.get("ttft_mean_s"), other.figures.get("ttft_mean_s")
    if before is None or after is None:
        return []
    tails = one.figures.get("ttft_p90_s"), other.figures.get("ttft_p90_s")
    if not _slower(before, after) and not _slower(*tails):
        return [f"Times to first token are the same within 1 %: mean {seconds(after)}."]
    told = f"TTFT p90 {seconds(tails[0])} to {seconds(tails[1])} ({change(*tails, 's')}); "
    told += f"mean {seconds(before)} to {seconds(after)} ({change(before, after, 's')}"
    parts = []
    for part in ("queue", "load", "compute"):
        pair = one.figures.get(f"{part}_mean_s"), other.figures.get(f"{part}_mean_s")
        if None not in pair:
            parts.append(f"{part} {change(*pair, 's')}")
    return [f"{told}{', of which ' + ', '.join(parts) if parts else ''})."]


def _goodput(one: Side, other: Side) -> list[str]:
    key = "goodput_requests_per_s"
    before, after = one.figures.get(key), other.figures.get(key)
    if before is None or after is None or before == after:
        return []
    ratio = f" ({after / before:.2f} x)" if before else ""
    return [f"Goodput {count(before)} to {count(after)} requests/s{ratio}."]


def _cause(one: Side, other: Side) -> str:
    differing = [setting for setting in settings((one, other)) if setting.counts]
    if warnings((one, other)):
        return "More than settings differs (see the warnings), so nothing is called the cause."
    if not differing:
        return (
            "No setting that the documents show differs, and the digests do: compare what they do "
            "not show, such as a policy from a file."
        )
    names = ", ".join(shown(setting.name) for setting in differing)
    if len(differing) == 1:
        before, after = differing[0].values
        return (
            f"Only {names} differs ({told_value(before)} to {told_value(after)}). Replays with the "
            "same settings are equal, so the changes come from it."
        )
    return (
        f"{len(differing)} settings differ ({names}), so these figures do not say which of them "
        "caused what; change one at a time."
    )


def told_value(given: object) -> str:
    """A setting's value in words."""
    if given is None:
        return "not set"
    if isinstance(given, bool):
        return "yes" if given else "no"
    if isinstance(given, int | float):
        return f"{given:,}"
    return shown(", ".join(map(str, given)) if isinstance(given, list) else str(given))


def _moved(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and abs(after - before) >= _LEAST_RATE


def _slower(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return False
    return abs(after - before) > _LEAST_SHARE * max(abs(before), abs(after))


def figures(sides: Sequence[Side]) -> list[tuple[str, str, str, list[float | None]]]:
    """(name, words, unit, values) of each figure that any side has."""
    found: list[tuple[str, str, str, list[float | None]]] = []
    for name, words, unit, _ in FIGURES:
        values = [side.figures.get(name) for side in sides]
        if any(values):
            found.append((name, words, unit, values))
    return found


def lost(sides: Sequence[Side]) -> list[tuple[str, list[float | None]]]:
    """(reason, rates) of each reason of loss, where every side has them."""
    known = [side.lost_by_reason for side in sides if side.lost_by_reason is not None]
    if len(known) < len(sides):
        return []
    reasons = dict.fromkeys(reason for rates in known for reason in rates)
    return [(reason, [rates.get(reason, 0.0) for rates in known]) for reason in reasons]
