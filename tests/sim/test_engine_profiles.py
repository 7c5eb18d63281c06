"""Engine profiles: the lookup, users' own files, and the behaviour that each rule adds.

Drawn profiles are compared with the second engine (tests/sim/judged); here each rule is seen
alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hicache.core.config import Config
from hicache.core.errors import CallerError
from sim import engine_profiles
from sim.engine.host_times import HostTimes
from sim.engine.sequence import RequestResult
from sim.engine_profiles.base import EngineProfile
from sim.options import EngineOptions
from sim.workload import Job
from sim.world import World
from tests.sim.judged.cases import MODEL, PROFILE, profiled
from tests.sim.judged.runs import simulated
from tests.sim.judged.workloads import PAGE, Prompts

PLAIN = engine_profiles.get("plain")
_LAG_NS = 10_000  # the engine sees the end of a pass up to 5 us late


def test_versions_are_found_and_others_say_which_is_used() -> None:
    assert engine_profiles.get("vllm@0.12.0").note == ""
    assert engine_profiles.get("vllm@0.7.3").batching == "separate"
    assert engine_profiles.get("vllm@0.8.0").batching == "mixed"
    between = engine_profiles.get("vllm@0.13.1")
    assert between.label == "vllm@0.12.0"
    assert between.note == "version 0.13.1 is not known; 0.12.0 is the nearest one that is"
    assert engine_profiles.get("sglang@0.5.1.post1").version == "0.5.1"
    assert engine_profiles.get("trtllm@1.0").version == "1.0.0rc3"
    assert engine_profiles.get("vllm@0.1").version == "0.6.0"
    newest = engine_profiles.versions("sglang")[-1]
    assert engine_profiles.get("sglang@nightly").version == newest
    assert engine_profiles.get("sglang").version == newest


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("vlm", "engine: expected one of plain, sglang, trtllm, vllm, found 'vlm'; did you mean"),
        ("vllm@", "engine: expected NAME or NAME@VERSION, found 'vllm@'"),
        ("plain@1", "engine: expected plain without a version, found '1'"),
    ],
)
def test_an_unknown_engine_is_one_line(text: str, told: str) -> None:
    with pytest.raises(CallerError) as error:
        engine_profiles.get(text)
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", engine_profiles.names())
def test_every_version_is_of_its_engine_and_in_order(name: str) -> None:
    versions = engine_profiles.versions(name)
    for version in versions:
        found = engine_profiles.get(f"{name}@{version}")
        assert (found.name, found.version, found.note) == (name, version, "")
        assert found.sources
    assert versions == sorted(set(versions), key=versions.index)


def _written(tmp_path: Path, document: object) -> str:
    path = tmp_path / "mine.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_a_users_engine_is_read(tmp_path: Path) -> None:
    mine = {"name": "mine", "batching": "separate", "chunked": False, "step_host_ns": 5}
    found = engine_profiles.get(_written(tmp_path, mine))
    assert found == EngineProfile("mine", batching="separate", chunked=False, step_host_ns=5)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("[1]", "expected an object with the fields of an engine, found a list of 1"),
        ("{", "expected an engine profile in JSON, found Expecting property name"),
        ({}, "expected a name, found none"),
        ({"name": "m", "step_ns": 1}, "field: expected one of name, version, batching"),
        ({"name": "m", "asked": "1"}, "field: expected one of name, version, batching"),
        ({"name": "m", "step_host_ns": 1.5}, "expected step_host_ns: an integer, found 1.5"),
        ({"name": "m", "chunked": 1}, "expected chunked: true or false, found 1"),
        ({"name": "m", "step_host_ns": True}, "expected step_host_ns: an integer, found true"),
        ({"name": "m", "max_running": 0}, "engine m: max_running: expected 1 to "),
        ({"name": "m", "memory_permille": 1001}, "engine m: memory_permille: expected 1 to 1000"),
        ({"name": "m", "reserve_permille": 1001}, "engine m: reserve_permille: expected 0 to 1000"),
        ({"name": "m", "step_gap_ns": -1}, "engine m: step_gap_ns: expected 0 to "),
        ({"name": "m", "all_reduce": "ring"}, "engine m: all_reduce: expected one of custom, nccl"),
        ({"name": "m", "batching": "both"}, "batching: expected one of mixed, separate, found"),
        ({"name": "m", "reserve": "all"}, "reserves: expected one of estimated, none, whole"),
        ('{"name": "m", "name": "n"}', "expected an engine profile in JSON, found the key"),
    ],
)
def test_a_wrong_file_names_its_field(tmp_path: Path, document: object, told: str) -> None:
    path = _written(tmp_path, document)
    with pytest.raises(CallerError) as error:
        engine_profiles.get(path)
    assert str(error.value).startswith(f"{path}: {told}")
    assert "\n" not in str(error.value)


def _served(
    jobs: list[Job], pages: int = 400, budget: int = 64, running: int = 256, **fields: Any
) -> tuple[tuple[RequestResult, ...], World]:
    prompts = [list(range(1000 * at, 1000 * at + job.input_length)) for at, job in enumerate(jobs)]
    config = Config(page_size=PAGE, device_pages=(pages,), host_pages=(0,))
    engine = EngineOptions(budget, running, profile=replace(PLAIN, **fields))
    world = World(Prompts(jobs, prompts), config, MODEL, PROFILE, engine=engine)
    return world.run().requests, world


def test_separate_passes_let_decoding_wait() -> None:
    """The first request decodes while the second one's prompt of many chunks comes."""
    jobs = [Job(0, 0, 8, 200), Job(1, 200_000_000, 640, 2)]
    (mixed, late), _ = _served(jobs)
    (apart, soon), _ = _served(jobs, batching="separate")
    assert apart.finish_ns > mixed.finish_ns
    assert soon.first_token_ns < late.first_token_ns


def test_prompts_that_are_not_divided_have_a_pass_to_themselves() -> None:
    jobs = [Job(0, 0, 40, 1), Job(1, 0, 200, 1), Job(2, 0, 20, 1), Job(3, 0, 20, 1)]
    found, _ = _served(jobs, chunked=False)
    ends = [one.first_token_ns for one in found]
    assert ends[0] < ends[1] < ends[2] == ends[3]


def test_a_whole_reserve_never_preempts() -> None:
    jobs = [Job(at, 0, 20, 60) for at in range(8)]
    preempted, _ = _served(jobs, pages=45)
    reserved, _ = _served(jobs, pages=45, reserve="whole")
    assert sum(one.retractions for one in preempted) > 0
    assert not sum(one.retractions for one in reserved)
    for one in reserved:  # each has 79 tokens, 20 pages, when it ends
        begun = (other for other in reserved if other.admit_ns <= one.admit_ns)
        assert sum(other.finish_ns > one.admit_ns for other in begun) <= 2


def test_an_estimated_reserve_admits_fewer_at_first() -> None:
    jobs = [Job(at, 0, 20, 60) for at in range(8)]
    free, _ = _served(jobs, pages=45)
    held, _ = _served(jobs, pages=45, reserve="estimated", reserve_permille=700)
    assert len({one.admit_ns for one in held}) > 2
    assert sum(one.retractions for one in held) < sum(one.retractions for one in free)


def test_host_times_are_added_or_hidden() -> None:
    """With overlap, a pass takes the longer of both; the gap is never hidden."""
    for profile, device, expected in (
        (PLAIN, 100, 100),
        (replace(PLAIN, step_host_ns=7, per_sequence_host_ns=2, prefill_host_ns=5), 100, 125),
        (replace(PLAIN, step_host_ns=70, overlap=True, step_gap_ns=3), 100, 103),
        (replace(PLAIN, step_host_ns=70, overlap=True, step_gap_ns=3), 50, 73),
    ):
        added, least = HostTimes(profile).of(decoding=2, chunks=2)
        assert max(device + added, least) == expected


def test_a_request_reaches_the_scheduler_late_and_one_after_another() -> None:
    jobs = [Job(0, 0, 8, 1), Job(1, 0, 8, 1)]
    (one,), _ = _served(jobs[:1])
    (late,), _ = _served(jobs[:1], request_host_ns=3_000_000, request_token_host_ns=1_000)
    assert late.arrival_ns == one.arrival_ns
    assert late.queue_ns - one.queue_ns == pytest.approx(3_008_000, abs=_LAG_NS)
    assert late.first_token_ns - one.first_token_ns == pytest.approx(3_008_000, abs=_LAG_NS)
    serial, _ = _served(jobs, request_serial_ns=50_000_000)
    assert [one.admit_ns for one in serial] == [50_000_000, 100_000_000]


def test_the_successor_of_a_request_comes_after_its_client_saw_the_end() -> None:
    jobs = [Job(0, 0, 8, 5), Job(1, 0, 8, 5, after=0)]
    (first, second), _ = _served(jobs, request_host_ns=3_000_000)
    assert second.arrival_ns == first.finish_ns
    assert second.admit_ns == first.finish_ns + 3_000_000


def test_a_pass_that_is_composed_ahead_misses_what_came_during_the_one_before() -> None:
    jobs = [Job(0, 0, 8, 50), Job(1, 100_000_000, 8, 1)]
    (first, plain), _ = _served(jobs)
    (_, ahead), _ = _served(jobs, lookahead=True)
    step_ns = (first.finish_ns - first.first_token_ns) // 49
    assert 0.9 * step_ns < ahead.first_token_ns - plain.first_token_ns < 1.2 * step_ns
    alone, _ = _served([Job(0, 0, 8, 5)], lookahead=True)
    assert alone == _served([Job(0, 0, 8, 5)])[0]


def test_a_chunk_is_limited_to_one_ranks_budget() -> None:
    config = Config(page_size=PAGE, device_pages=(100,), host_pages=(0,))
    ends = []
    for most in (0, 32):
        engine = EngineOptions(token_budget=64, most_chunk=most)
        prompts = Prompts([Job(0, 0, 64, 1)], [list(range(64))])
        (found,) = World(prompts, config, MODEL, PROFILE, engine=engine).run().requests
        ends.append(found.first_token_ns)
    assert ends[1] > 1.3 * ends[0]  # two passes, which read the weights twice


def _ends(**options: Any) -> list[RequestResult]:
    """One request that decodes, and two that come while it does."""
    jobs = [Job(0, 0, 8, 60), Job(1, 100_000_000, 16, 1), Job(2, 130_000_000, 16, 1)]
    prompts = [list(range(100 * at, 100 * at + job.input_length)) for at, job in enumerate(jobs)]
    config = Config(page_size=PAGE, device_pages=(400,), host_pages=(0,))
    engine = EngineOptions(token_budget=64, **options)
    world = World(Prompts(jobs, prompts), config, MODEL, PROFILE, engine=engine)
    return list(world.run().requests)


def test_new_requests_are_taken_after_so_many_decode_passes() -> None:
    first, second, third = _ends(poll_passes=20)
    step_ns = (first.finish_ns - first.first_token_ns) // 59
    assert 2 * step_ns < second.queue_ns < 20 * step_ns
    assert second.admit_ns == third.admit_ns
    assert _ends()[1].admit_ns < second.admit_ns


def test_prompts_wait_until_they_fill_a_pass_or_for_so_many_passes() -> None:
    _, second, third = _ends(wait_passes=50, wait_permille=500)
    assert second.admit_ns == third.admit_ns >= third.arrival_ns  # 33 of 64 tokens
    first, second, _ = _ends(wait_passes=3, wait_permille=900)
    step_ns = (first.finish_ns - first.first_token_ns) // 59
    assert 2.9 * step_ns < second.queue_ns < 4.1 * step_ns


@pytest.mark.parametrize("seed", [3, 7, 37, 41, 62, 88])
def test_decode_steps_that_run_as_one_change_nothing(seed: int) -> None:
    case = profiled(seed)
    case = replace(case, options=replace(case.options, checks="off"))
    stepped = replace(case, engine=replace(case.engine, fast_forward=False))
    assert simulated(case)[0] == simulated(stepped)[0]
