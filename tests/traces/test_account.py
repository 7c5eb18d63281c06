"""The account of hits: exact sums, and the ceiling page by page."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from traces.formats.base import Trace
from traces.replaying.account import Account, Row, ceiling_of
from traces.results.record import NO_SHARE

from .rig import HEADER, jobs_of, mooncake, native, read


def test_sums_are_exact() -> None:
    """Three tiers, requests that were not served, and the second half of an odd number."""
    jobs = jobs_of(*((0, length, 1) for length in (100, 600, 1000, 50, 70)))
    account = Account(jobs, 64, np.array([0, 512, 1024, 0, 64], dtype=np.int32))
    assert account.whole() == account.steady() == NO_SHARE
    account.admit(0, 0, 0)
    account.admit(1, 512, 3, 20)
    account.admit(2, 0, 500, 7)
    account.admit(2, 1000, 0)  # it came back after a preemption: not counted again
    assert [account.served(index) for index in range(5)] == [True, True, True, False, False]
    whole, steady = account.whole(), account.steady()
    tiers = (whole.hit_tokens.device, whole.hit_tokens.host, whole.hit_tokens.storage)
    assert (whole.requests, whole.input_tokens, *tiers) == (3, 1700, 512, 503, 27)
    assert (whole.hit_tokens.all, whole.computed_tokens) == (1042, 658)
    lost = 1024 - 507
    assert (whole.ceiling_tokens, whole.first_seen_tokens, whole.lost_tokens) == (1536, 164, lost)
    assert (whole.hit_rate, whole.rate(17)) == (1042 / 1700, 17 / 1700)
    assert whole.hit_rate_pages == (9 + 8) / (2 + 10 + 16)
    assert whole.hit_rate_mean == pytest.approx((535 / 600 + 507 / 1000) / 3, abs=1e-12)
    assert (steady.requests, steady.input_tokens, steady.hit_tokens.all) == (2, 1600, 1042)
    rows = [Row(0, 100, 0, 0, 0, 0), Row(1, 600, 512, 512, 3, 20), Row(2, 1000, 1024, 0, 500, 7)]
    assert list(account.rows()) == rows
    assert [row.lost for row in rows] == [0, 0, 517]


def blocks() -> Trace:
    """Prompts that share prefixes, of more pages than a table begins with."""
    draw = random.Random(1)
    walks = [[draw.choice((0, 1)), *(draw.randrange(9) for _ in range(8))] for _ in range(120)]
    ids = [[hash(tuple(walk[:end])) & 0xFFFFFFF for end in range(1, 10)] for walk in walks]
    return read(*(mooncake(found, 512 * 8 + draw.randrange(1, 513)) for found in ids))


def turns() -> Trace:
    records: list[object] = [HEADER]
    for n in range(40):
        prompt = ("system", 40), (f"q{n % 4}", 90 + n // 4), (f"r{n}", 30)
        records.append(native(*prompt, output=(f"a{n}", 33)))
    return read(*records)


@pytest.mark.parametrize(("made", "size"), [(blocks, 4), (blocks, 512), (turns, 16), (turns, 64)])
@pytest.mark.parametrize("whole", [True, False])
def test_ceilings_are_the_leading_pages_seen_before(
    made: Callable[[], Trace], size: int, whole: bool
) -> None:
    trace, seen = made(), set[int]()
    paged = trace.paged(size)
    for job, found in zip(trace.jobs, ceiling_of(paged, whole).tolist(), strict=True):
        chain = paged.chain(job).tolist()
        leading = next((at for at, one in enumerate(chain) if one not in seen), len(chain))
        seen.update(chain)
        most = job.input_length if whole else (job.input_length - 1) // size * size
        if whole and paged.knows_output:
            most = job.input_length // size * size
        assert found == min(leading * size, most), f"request {job.index}"
