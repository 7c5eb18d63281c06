"""Whether a report says what the run's events say: the accounts of `--check every`.

Compares the whole `--json` document and each request's record with accounts that were counted a
second time (invariants/accounts). Does not count anything itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from invariants.accounts import closed_loop, compare, figures
from invariants.accounts.accounts import Accounts

from ..formats.base import Paged
from ..replaying.run import Run
from ..replaying.settings import Settings


def judge(
    paged: Paged, settings: Settings, run: Run, document: Mapping[str, object], command: str
) -> None:
    """Raises HarnessFault for the first figure that the events do not give.

    paged: without the requests that were left out. Does nothing without accounts, and after an
    interrupt, which may come between an event and its count.
    """
    accounts = run.accounts
    if accounts is None or run.interrupted:
        return
    core, concurrency = settings.core, settings.load.concurrency
    for index in settings.uncached.requests:
        accounts.entries[index].finish_ns = 0  # it has no events
    if concurrency:
        closed_loop.apply(accounts.entries, paged.jobs, concurrency, settings.speed)
    timed = run.latency is not None
    ceiling = figures.ceilings(paged, whole_prompts=not timed)
    expected = figures.shares(accounts, ceiling, core.page_size)
    expected |= figures.pages(accounts, core.components, settings.page_bytes)
    if settings.storage is not None:
        expected |= figures.prefetches(accounts, core.page_size)
    if timed:
        expected |= figures.times(accounts)
        if settings.slo is not None:
            expected |= figures.limits(accounts, dict(settings.slo.limits))
    if len(core.components) > 1:
        expected["lookups"] = figures.lookups(accounts, core.components, ceiling, core.page_size)
    wrong = accounts.wrong or _of_requests(accounts, run)
    if wrong:
        compare.fail(wrong[0], command)
    compare.check(expected, _comparable(document), command)


def _of_requests(accounts: Accounts, run: Run) -> list[str]:
    """What is wrong with the two parts of each request's time in passes."""
    results = () if run.latency is None else run.latency.requests
    parts = (
        figures.in_parts(one.request, accounts.entries[one.request], one.load_ns, one.compute_ns)
        for one in results
    )
    return [part for part in parts if part]


def _comparable(document: Mapping[str, object]) -> Mapping[str, object]:
    """The document without the words of its lookups."""
    lookups = document.get("lookups")
    if not isinstance(lookups, list):
        return document
    rows = [{key: row[key] for key in row if key != "because"} for row in lookups]
    return {**document, "lookups": rows}
