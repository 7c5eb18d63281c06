"""The rows of the report that say how large everything is, and why.

Bytes are those of one rank; with several ranks, the total of all is printed beside them. Does not
choose a size (see pools) or print (see report).
"""

from __future__ import annotations

from hicache.core.components.base import residency

from ..formats.base import Trace
from ..replaying.settings import Settings

Row = tuple[str, str]


def size_rows(trace: Trace, settings: Settings) -> list[Row]:
    """What was left out, then one row for each pool, window, states and the page size. The first
    component's rows have only the tier's name."""
    core, pools = settings.core, settings.pools
    skipped, uncached = settings.skipped, settings.uncached
    rows = []
    if skipped.requests:
        count = len(skipped.requests)
        what = f"{count:,} request{'s' * (count > 1)} with {skipped.input_tokens:,} input tokens"
        rows.append(("skipped", f"{what}, too large for the device"))
    if uncached.requests:
        count = len(uncached.requests)
        what = f"{count:,} request{'s' * (count > 1)} with {uncached.input_tokens:,} input tokens"
        rows.append(("not cached", f"{what}, larger than the device pool: computed in full"))
    for tier, sizes, rules in (
        ("device", core.device_pages, pools.device_rules),
        ("host", core.host_pages, pools.host_rules),
    ):
        for place, pages in enumerate(sizes if any(sizes) else sizes[:1]):
            name = f"  {core.components[place]}" if place else tier
            rows.append((name, _pool(place, pages, settings, rules[place])))
    if pools.window:
        rows.append(("window", f"{pools.window:,} tokens"))
    if pools.interval:
        limit = pools.states_per_path
        most = f", at most {limit} on a path" if limit else ""
        rows.append(("states", f"every {pools.interval:,} tokens{most}"))
    rows.append(("page size", _page_size(trace, settings)))
    return rows


def model_rows(settings: Settings) -> list[Row]:
    model, tp = settings.model, settings.tp
    each = " per rank" if settings.page_ranks > 1 else ""
    page = f"{settings.page_bytes[0]:,} bytes a page{each}, {model.kv_dtype}"
    weights = _bytes(settings.weight_bytes, tp, model.weight_bytes)
    return [("model", f"{model.name}, {page}"), ("weights", f"{weights}, {model.weight_dtype}")]


def each_rank(settings: Settings) -> str:
    """What follows a figure of one rank where there are several."""
    return " per rank" if settings.tp > 1 else ""


def hardware_row(settings: Settings) -> Row:
    """The link is that of one rank, in one direction, and what copies reach of it."""
    profile, tp = settings.hardware, settings.tp
    link = f"host link {profile.reached_link_bytes_per_s / 1e9:.1f} GB/s{each_rank(settings)}"
    if settings.host_bandwidth.bytes_per_s:
        source = "as given"
    elif profile.curves:
        source = "measured copies"
    else:
        factor = settings.host_bandwidth.factor
        times = f"{float(factor):g} x " if factor != 1 else ""
        source = f"{times}{profile.link_permille / 10:g}% of its peak"
    return "hardware", f"{tp} x {profile.name}, {link} each way ({source})"


def _pool(place: int, pages: int, settings: Settings, rule: str) -> str:
    if not pages:
        return "none"
    core = settings.core
    size = pages * settings.page_bytes[place] // settings.parallelism.attention_dp
    amount = f"{_bytes(size, settings.tp, size * settings.tp)} ({rule})"
    if residency(core.components[place]) == "state":
        return f"{pages:,} states, {amount}"
    return f"{pages:,} pages, {pages * core.page_size:,} tokens, {amount}"


def _bytes(each: int, ranks: int, total: int) -> str:
    """Bytes of one rank, and of all where there are several."""
    if ranks == 1:
        return _rounded(total)
    return f"{_rounded(each)} a rank, {_rounded(total)} on {ranks} ranks"


def _rounded(size: int) -> str:
    if size >= 10**12:
        return f"{size / 1e12:,.2f} TB"
    return f"{size / 1e9:,.1f} GB" if size >= 10**8 else f"{size / 1e6:,.1f} MB"


def _page_size(trace: Trace, settings: Settings) -> str:
    size, block = settings.core.page_size, trace.block_size
    source = "as given" if settings.page_size_given else f"that of {settings.model.name}"
    text = f"{size:,} tokens, {source}"
    if block is None or size == block:
        return text
    return f"{text}; any gives about the same hits, since the trace has blocks of {block:,} tokens"
