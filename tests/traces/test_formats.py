"""What the formats read, and the keys that they make of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache.core.errors import CallerError
from traces.formats import pages, reading

from .rig import HEADER, Capsys, Patch, document, mooncake, native, read, write


def rows(raw: bytes) -> list[int]:
    return [int(value) for value in np.frombuffer(raw, dtype="<i8")]


def test_mooncake_pages_are_identified_by_block_and_offset() -> None:
    trace = read(mooncake([70, 80], 600), mooncake([70, 90], 1024))
    first, second = trace.jobs
    paged = trace.paged(128)
    assert rows(paged.prompt_key(first).raw) == [0, 1, 2, 3, 4]
    assert rows(paged.prompt_key(second).raw) == [0, 1, 2, 3, 8, 9, 10, 11]
    # 600 tokens are four whole pages; what is beyond belongs to nobody else, at any depth
    key, other = (rows(paged.key(job, 128 * 12).raw) for job in trace.jobs)
    assert key[:4] == [0, 1, 2, 3]
    assert all(page < 0 for page in key[4:])
    assert len({*key, *other}) == 12 + 12 - 4


def test_mooncake_ids_keep_all_64_bits() -> None:
    low = 1
    ids = [low, low + (1 << 32), low + (1 << 63), -(1 << 63), (1 << 64) - 1]
    trace = read(*(mooncake([one]) for one in ids), mooncake([ids[2]]))
    keys = [trace.paged(512).prompt_key(job).raw for job in trace.jobs]
    assert len(set(keys[:5])) == 5
    assert keys[5] == keys[2]


def test_sessions_and_tenants_are_numbered_by_their_first_requests() -> None:
    one, two = ("a", 3), ("b", 4)
    trace = read(
        {**HEADER, "version": 2},
        native(one, output=two, session="chat", tenant="x"),
        native(one, output=two),
        native(one, output=two, after=1, delay=5),
        native(one, output=two, session="chat", priority=7, tenant="x"),
        native(one, output=two, after=2, session="other", priority=-1),
    )
    assert [job.session for job in trace.jobs] == [0, 1, 1, 0, 4]
    assert [job.priority for job in trace.jobs] == [0, 0, 0, 7, -1]
    assert trace.tenants.tolist() == [0, 1, 1, 0, 1]
    assert list(trace.tenant_names) == ["x", ""]
    plain = read(mooncake([1]), mooncake([2]))
    assert plain.tenants.tolist() == [0, 0]
    assert list(plain.tenant_names) == [""]


SEGMENTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), min_size=1, max_size=5)


@given(
    st.lists(st.tuples(SEGMENTS, st.sampled_from(["", "x"])), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_native_pages_have_equal_ids_exactly_where_their_prefixes_are_equal(
    prompts: list[tuple[list[tuple[str, int]], str]], size: int
) -> None:
    requests = [
        native(*segments[:-1] or [("a", 1)], output=segments[-1], namespace=namespace)
        for segments, namespace in prompts
    ]
    trace = read(HEADER, *requests)
    paged = trace.paged(size)
    ids: dict[tuple[str, bytes], int] = {}
    for job in trace.jobs:
        key, chain = paged.key(job, job.input_length + job.output_length - 1), paged.chain(job)
        assert len(chain) == key.pages
        for page, number in enumerate(chain.tolist(), 1):
            prefix = key.namespace, key.raw[: page * key.stride]
            assert ids.setdefault(prefix, number) == number
    assert len({*ids.values()}) == len(ids)


def test_too_many_different_blocks_are_one_line(monkeypatch: Patch) -> None:
    monkeypatch.setattr(pages, "MOST", 3)
    monkeypatch.setattr(reading, "MOST", 3)
    with pytest.raises(CallerError, match="trace:2: expected at most 3 different blocks"):
        read(mooncake([1, 2]), mooncake([1, 3, 4]))
    with pytest.raises(CallerError, match="trace:3: expected at most 3 different segments"):
        read(HEADER, native(("a", 1), output=("b", 1)), native(("c", 1), output=("d", 1)))


@pytest.mark.parametrize(
    ("given", "places", "rounded"),
    [("", [34, 0], ""), ("--block-size 16", [32, 0], ", rounded down to pages of 16")],
)
def test_inspect_says_where_prompts_part(
    given: str, places: list[int], rounded: str, tmp_path: Path, capsys: Capsys
) -> None:
    """A date at the head of a system prompt; one prompt comes twice. Segments, and token ids."""
    days = [native(("head", 34), (day, 94), output=("x", 1)) for day in "abca"]
    native_file, ids = str(tmp_path / "trace.jsonl"), tmp_path / "ids.jsonl"
    write(tmp_path / "trace.jsonl", HEADER, *days, native(("other", 99), output=("x", 1)))
    prompts = [[1] * 34 + [day] * 94 for day in (2, 3, 4, 2)] + [[5] * 99]
    write(ids, *({"at": 1_795_000_000, "in": prompt, "out": [6]} for prompt in prompts))
    told = ["--columns", "time=at,input_ids=in,output_ids=out", *given.split()]
    for words in ([native_file], [str(ids), *told])[bool(given) :]:
        found = document(tmp_path, "inspect", *words)
        parting = [(one["token"], one["requests"]) for one in found["parting"]]
        assert parting == [(places[0], 2), (places[1], 1)]
        said = f"{places[0]} (40%), {places[1]} (20%){rounded} can be reused"
        assert said in " ".join(capsys.readouterr().out.split())
