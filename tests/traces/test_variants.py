"""What a report keeps of a replay: series that add up to its figures, and bounded in size."""

from __future__ import annotations

import json

import pytest

from traces.cli import main, parse
from traces.formats.base import Paged
from traces.html.collecting import collect, hot_prefixes
from traces.html.document import FIRST_SEEN, LOST
from traces.replaying import playing
from traces.replaying.builtin import opened
from traces.replaying.config import ReplayConfig, resolve
from traces.replaying.run import Run
from traces.reporting.results import result_of
from traces.results.record import Variant, document

SMALL = ["--device-pages", "90", "--host-pages", "120", "--check", "off"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("tree") / "tree.jsonl")
    assert main(["generate", "random-tree", "--requests", "150", "-o", path]) == 0
    return path


def variant(*arguments: str) -> tuple[Variant, ReplayConfig, Run, Paged]:
    _, options = parse(["replay", *arguments])
    replay, trace = opened(options)  # type: ignore[arg-type]
    settings, paged = resolve(replay, trace)
    run = playing.run(trace, paged, settings, None, 0.0, follow=True)
    found = collect(trace, settings, run, result_of(trace, settings, run))
    return found, settings, run, paged


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--tp", "2", "--write-policy", "write_back"],
        ["--components", "full,mamba", "--mamba-states", "60"],
        ["--storage", "sim:", "--prefetch-threshold", "0"],
        ["--mode", "hits"],
    ],
    ids=" ".join,
)
def test_the_series_add_up_to_the_figures(tree: str, options: list[str]) -> None:
    found, settings, run, _ = variant(tree, *SMALL, *options)
    series, whole = found.timeline.series, found.whole
    assert all(len(one) <= 200 for one in series.values())
    for tier in ("device", "host", "storage"):
        assert sum(series[tier]) == getattr(whole.hit_tokens, tier)
    lost = {name.removeprefix(LOST): sum(one) for name, one in series.items() if LOST in name}
    assert lost == found.lost_by_reason
    assert sum(lost.values()) == whole.lost_tokens > 0
    assert sum(series[FIRST_SEEN]) + sum(lost.values()) == whole.computed_tokens
    json.dumps(document(found))
    if found.moved is None:
        assert settings.mode == "hits"
        return
    for way in ("d2h", "h2d"):
        moved = sum(getattr(found.moved, f"{way}_bytes"))
        assert moved == run.transfers[way].bytes * settings.tp == run.transfers[way].bytes_total > 0
    if run.storage is not None:
        assert sum(found.moved.storage_read_bytes) == run.storage.read.bytes_total
        assert sum(found.moved.storage_written_bytes) == run.storage.written.bytes_total > 0


def test_the_tree_counts_every_page_that_is_shared(tree: str) -> None:
    _, _, run, paged = variant(tree, *SMALL, "--mode", "hits")
    seen: set[int] = set()
    reusable = 0
    for job in paged.jobs:
        chain = paged.chain(job).tolist()
        reusable += sum(page in seen for page in chain[: job.input_length // paged.page_size])
        seen |= set(chain)
    found = hot_prefixes(paged, run.account)
    assert sum(edge.reusable_tokens for edge in found.edges) == reusable * paged.page_size
    hits = sum(edge.hit_tokens or 0 for edge in found.edges)
    size = paged.page_size
    assert hits == sum(row.hit_tokens // size * size for row in run.account.rows())
    for place, edge in enumerate(found.edges):
        assert edge.id == place
        assert edge.parent < place
        assert (edge.hit_tokens or 0) <= edge.reusable_tokens
