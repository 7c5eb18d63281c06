"""Recordings replay exactly, decisions depend on the order of events alone, faults are named."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.actions import (
    Abandoned,
    Admitted,
    Backup,
    Copy,
    Delete,
    Evicted,
    Fetch,
    KvRemoved,
    Load,
    Lookup,
    Matched,
    Outcome,
    Piece,
    Prefetched,
    Prefill,
    Refused,
    Released,
    Restarted,
    StateSlots,
    StorageDetached,
    Store,
)
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    DeleteDone,
    DetachWanted,
    Event,
    EvictWanted,
    FetchDone,
    Finished,
    Flushed,
    LoadDone,
    LookupDone,
    MatchWanted,
    PagesWanted,
    PinWanted,
    PrefetchLimitReached,
    PrefillDone,
    Retracted,
    StorageAttached,
    StoreDone,
    TimePassed,
    UnpinWanted,
)
from hicache.core.types import NO_PAGES, Key, Pages, Tier
from hicache.runtime.config_document import MAY_LACK, config_of, document, written
from hicache.runtime.decisions import Decisions
from hicache.runtime.driver import Driver
from hicache.runtime.encoding import add_words, event_bytes
from hicache.runtime.executors import ImmediateExecutor
from hicache.runtime.recording import CHECK_EVERY, DivergedError, Recorder, replay
from hicache.runtime.recording_format import (
    MAX_LINE_BYTES,
    Recording,
    as_json,
    parse,
    read_recording,
)
from sim.options import WorldOptions
from sim.world import World
from tests.configs import configured
from tests.sim.rig import CONFIGURATIONS, MODEL, PROFILE
from tests.sim.workloads import hybrid, shared_prefixes

CONFIG = Config(page_size=4, device_pages=(24,), host_pages=(40,))
DEVICE = {"full": 24, "swa": 7, "mamba": 7}
HOST = {"full": 40, "swa": 20, "mamba": 12}


def recorded(
    seed: int = 1, requests: int = 12, options: WorldOptions | None = None, **config: Any
) -> tuple[list[str], str]:
    """The lines of a simulated run, and its digest. Pools of a hybrid: see DEVICE and HOST."""
    lines: list[str] = []
    components = config.get("components", ("full",))
    sizes = {
        "device_pages": tuple(DEVICE[name] for name in components),
        "host_pages": tuple(HOST[name] for name in components),
        "swa_window": 6 if "swa" in components else 0,
    }
    settings_ = {"page_size": 4, **sizes, **config}
    core = configured(**settings_)
    recorder = Recorder(core, lines.append, made={"seed": seed})
    options = options or WorldOptions(checks="off")
    workload = shared_prefixes(seed, requests)
    model = hybrid(components, 6, MODEL) if len(components) > 1 else MODEL
    World(workload, core, model, PROFILE, options=options, observers=(recorder,)).run()
    return lines, recorder.close()


def recording_of(lines: list[str]) -> Recording:
    return parse("t.recording", [line.encode() for line in lines])


@pytest.mark.one_in(8)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    policy=st.sampled_from(["write_through", "write_back", "write_through_selective"]),
    lag=st.sampled_from([0, 5_000, 50_000_000]),
    failing=st.integers(2, 9),
    kv_events=st.booleans(),
    components=st.sampled_from(CONFIGURATIONS),
)
def test_a_replay_decides_as_the_run_did(
    seed: int, policy: str, lag: int, failing: int, kv_events: bool, components: tuple[str, ...]
) -> None:
    """Whatever the times were and whichever copies failed: the order of events is all it takes."""
    options = WorldOptions(seed=seed, lag_ns=lag, faults=lambda number, _: number % failing == 1)
    rules = {"write_policy": policy, "kv_events": kv_events, "components": components}
    lines, digest = recorded(seed, 14, options, **rules)
    recording = recording_of(lines)
    assert recording.digest == digest
    assert replay(recording) == digest


def test_the_first_event_that_differs_is_named() -> None:
    lines, _ = recorded(3, 20)
    recording = recording_of(lines)
    records = [json.loads(line) for line in lines]
    at = next(
        index
        for index, record in enumerate(records)
        if record.get("op") == "AdmitWanted" and index > len(records) // 2
    )
    records[at]["args"][1] = 1  # a chunk of one token: another prefill
    changed = recording_of([json.dumps(record) + "\n" for record in records])
    number = sum(
        record.get("op", "check") not in ("check", "end", "start") for record in records[: at + 1]
    )
    with pytest.raises(DivergedError) as caught:
        replay(changed)
    assert f"t.recording:{at + 1}: event {number} (AdmitWanted) is the first" in str(caught.value)
    assert replay(recording) == recording.digest


def test_a_difference_beyond_the_short_digest_is_found_at_the_end() -> None:
    lines, digest = recorded()
    end = json.loads(lines[-1])
    end["digest"] = digest[:8] + "0" * 24
    with pytest.raises(DivergedError, match="digest"):
        replay(recording_of([*lines[:-1], json.dumps(end) + "\n"]))


def test_every_event_is_recorded_exactly() -> None:
    key = Key.from_tokens(range(8), 4, namespace="lora é\n")
    told: tuple[Event, ...] = (
        Arrived(3, key, 9, 2),
        Finished(3, key, 8),
        Retracted(3, key, 9, 2, 7),
        PagesWanted(3, 12, 9),
        EvictWanted(Tier.HOST, "swa", 2),
        Flushed(),
        Flushed(storage=True),
        PrefetchLimitReached(3),
        StorageAttached(),
        DetachWanted(),
        LoadDone(7, False),
        BackupDone(8, True),
        PrefillDone(9),
        LookupDone(10, 4),
        FetchDone(11),
        StoreDone(12, 1),
        DeleteDone(13, False),
        TimePassed(),
        PinWanted(4, key, Tier.HOST),
        UnpinWanted(4),
    )
    assert {type(event) for event in told} == set(get_args(Event)) - {
        *(Aborted, AdmitWanted, ContinueWanted, MatchWanted)
    }
    assert len({event_bytes(event) for event in told}) == len(told)
    for event in told:
        lines: list[str] = []
        recorder = Recorder(CONFIG, lines.append, lambda: 77)
        recorder.on_event(event, Core(CONFIG).view)
        recorder.on_outcomes(event, [], Core(CONFIG).view)
        recorder.close()
        (step,) = recording_of(lines).steps
        assert step.event == event
        assert type(step.event) is type(event)
        assert step.time_ns == 77


@pytest.mark.one_in(8)
def test_long_runs_have_intermediate_digests(tmp_path: Path) -> None:
    lines, digest = recorded(5, 60)
    recording = recording_of(lines)
    assert len(recording.checks) == 1 + recording.events // CHECK_EVERY > 1
    path = tmp_path / "run.recording"
    path.write_text("".join(lines))
    assert replay(read_recording(str(path))) == digest
    assert recording.made == {"seed": 5}


def test_an_empty_recording_has_a_digest() -> None:
    recording = recording_of([HEADER + "\n", f'{{"op":"end","events":0,"digest":"{EMPTY}"}}\n'])
    with pytest.raises(DivergedError, match="ends with digest"):
        replay(recording)


def numbers(*values: int) -> Pages:
    return np.array(values, dtype=np.int64)


PIECE = Piece("full", 0, (b"ab", b"c"), numbers(9, 8))
LOOKUP = Lookup(1, 1, 0, (b"ab", b"c"), 1, (0, 2))
FETCH = Fetch(1, 1, 0, (PIECE,), 2)
PREFETCHED = Prefetched(1, 2, 3, 4, 5, "")
SLOTS = StateSlots("mamba", 2, 3, (4, 5), 4, ((4, 4),))


def prefill_of(slots: StateSlots) -> Prefill:
    table = numbers(5, 6)
    return Prefill(1, 1, 0, 4, (table,), (), True, (slots,))


def test_every_field_of_every_decision_counts() -> None:
    """Outcomes that differ in one place, or in where one ends and the next begins."""
    answers: list[list[Outcome]] = [
        [],
        [Released(1)],
        [Released(2)],
        [Restarted(1)],
        [Released(1), Released(1)],
        [Matched(1, 2, 3)],
        [Matched(1, 23, 0)],
        [Prefill(1, 1, 0, 4, (numbers(5, 6),), (), True)],
        [Prefill(1, 1, 0, 4, (numbers(5, 7),), (), True)],
        [Prefill(1, 1, 0, 4, (numbers(5),), (), True)],
        [Prefill(1, 1, 0, 4, (numbers(5, 6),), (3,), True)],
        [Prefill(1, 1, 0, 4, (numbers(5, 6),), (), False)],
        [Prefill(1, 1, 0, 4, (numbers(5, 6), numbers(-1, 6)), (), True)],
        [Prefill(1, 1, 0, 4, (numbers(5, 6), numbers(1, 6)), (), True)],
        [prefill_of(SLOTS)],
        [prefill_of(SLOTS._replace(source=-1))],
        [prefill_of(SLOTS._replace(checkpoint_slots=(5, 4)))],
        [prefill_of(SLOTS._replace(checkpoints=((4, 5),)))],
        [Admitted(1, 2, 0, 4, (2, 3), (0, 1), 3)],
        [Admitted(1, 2, 0, 4, (2, 3), (0, 1), 4)],
        [Admitted(1, 2, 0, 4, (2, 4), (0, 1), 3)],
        [Admitted(1, 2, 0, 4, (2, 3), (0, 0), 3)],
        [Refused(1, "no_pages", 2, 1, -1, "full")],
        [Refused(1, "no_pages", 2, 1, -1, "swa")],
        [Backup(1, (Copy("full", numbers(1), numbers(2)),))],
        [Backup(1, (Copy("full", numbers(1), numbers(3)),))],
        [Backup(1, (Copy("swa", numbers(1), numbers(2)),))],
        [Backup(1, (Copy("full", numbers(1), numbers(2)), Copy("swa", NO_PAGES, NO_PAGES)))],
        [Load(1, 0, (Copy("full", numbers(1), numbers(2)),))],
        [KvRemoved(Tier.HOST, (b"ab", b"c"))],
        [KvRemoved(Tier.HOST, (b"a", b"bc"))],
        [Evicted(Tier.HOST, "full", numbers(1), 2, True)],
        [Evicted(Tier.HOST, "full", numbers(1), 2, False)],
        [Refused(1, "fetching", 0, 0, -1, "full", 7)],
        [Refused(1, "fetching", 0, 0, -1, "full", 8)],
        [LOOKUP],
        [LOOKUP._replace(flight=2)],
        [LOOKUP._replace(request=2)],
        [LOOKUP._replace(first_page=1)],
        [LOOKUP._replace(digests=(b"a", b"bc"))],
        [LOOKUP._replace(known_pages=0)],
        [LOOKUP._replace(trailing_pages=(0, 1))],
        [FETCH],
        [FETCH._replace(request=2)],
        [FETCH._replace(first_page=1)],
        [FETCH._replace(pages=3)],
        [FETCH._replace(pieces=(PIECE, PIECE))],
        [FETCH._replace(pieces=(PIECE._replace(component="swa"),))],
        [FETCH._replace(pieces=(PIECE._replace(first_page=1),))],
        [FETCH._replace(pieces=(PIECE._replace(digests=(b"ab", b"d")),))],
        [FETCH._replace(pieces=(PIECE._replace(pages=numbers(8, 9)),))],
        [Store(1, (PIECE,))],
        [Store(2, (PIECE,))],
        [Store(1, ())],
        [Delete(1)],
        [Delete(2)],
        [Abandoned(1)],
        [StorageDetached()],
        [StorageDetached(), StorageDetached()],
        *([PREFETCHED._replace(**{name: 9})] for name in PREFETCHED._fields[:5]),
        [PREFETCHED],
        [PREFETCHED._replace(reason="late")],
    ]
    found = set()
    for outcomes in answers:
        decisions = Decisions()
        decisions.add(outcomes)
        found.add(decisions.digest())
    apart = Decisions()
    apart.add([Released(1)])
    apart.add([Released(1)])
    assert len(found | {apart.digest()}) == len(answers) + 1


def test_the_replay_digest_covers_the_pages_of_storage() -> None:
    other = PIECE._replace(pages=numbers(9, 7))
    found = set()
    for outcome in (
        *(LOOKUP, LOOKUP._replace(known_pages=2), LOOKUP._replace(trailing_pages=(0, 3))),
        *(FETCH, FETCH._replace(pages=3), FETCH._replace(pieces=(other,))),
        *(Store(1, (PIECE,)), Store(1, (other,)), Delete(1), Abandoned(1), StorageDetached()),
        *(PREFETCHED, PREFETCHED._replace(fetched_pages=4)),
    ):
        words = array("q")
        add_words(words, StoreDone(12, 1), [outcome])
        found.add(words.tobytes())
    assert len(found) == 13


def test_later_settings_are_written_where_they_are_not_the_usual_ones() -> None:
    """So files from before there were these are still read, and unchanged when written again."""
    changes: dict[str, Any] = {
        "exchange_pages": (2,),
        "write_policy": "write_back",
        "storage": True,
        "prefetch_policy": "timeout",
        "prefetch_threshold_tokens": 8,
        "prefetch_budget_tokens": 64,
        "max_stores": 3,
        "store_tries": 1,
        "recompute_token_cost": 7,
        "recompute_position_cost": 5,
        "ttl_periods": 2,
        "pin_pages": (6,),
        "pin_host_pages": (4,),
        "passes": 2,
    }
    config = replace(CONFIG, **changes)
    assert changes.keys() - {"write_policy"} == MAY_LACK.keys()
    assert config_of(written(config)) == config
    assert not written(CONFIG).keys() & MAY_LACK.keys()
    assert config_of(written(CONFIG)) == CONFIG
    recorder = Recorder(config, (lines := list[str]()).append)
    recorder.close()
    assert recording_of(lines).config == config


def test_starts_are_recorded_once_and_change_no_decision() -> None:
    lines: list[str] = []
    recorder = Recorder(CONFIG, lines.append)
    driver = Driver(Core(CONFIG), ImmediateExecutor(), (recorder,))
    recorder.started()
    driver.feed(Arrived(0, Key.from_tokens(range(8), 4), 8, 1))
    recorder.started()
    recorder.started()
    driver.feed(AdmitWanted(0, 8))
    digest = recorder.close()
    recording = recording_of(lines)
    assert [step.event is None for step in recording.steps] == [False, True, False]
    assert replay(recording) == digest


HEADER = json.dumps(
    {
        "hicache_recording": 3,
        "config": document(CONFIG),
        "made": {},
    }
)
EMPTY = "0" * 32


def arrived(**changes: Any) -> str:
    key = as_json(Key.from_tokens(range(4), 4))
    return json.dumps({"op": "Arrived", "t": 0, "args": [0, key, 4, 0], "d": "0" * 8, **changes})


BAD: dict[str, tuple[list[str], int, str]] = {
    "empty": ([], 1, "an empty file"),
    "a tape of the fuzzer": (
        ['{"tape": "hicache-fuzz", "version": 1}'],
        1,
        "a tape of hicache fuzz; give it to hicache fuzz --replay",
    ),
    "an older recording": (['{"hicache_tape": 2}'], 1, "another kind of file"),
    "another file": (['{"format": "hicache-trace"}'], 1, "another kind of file"),
    "not JSON": (["what"], 1, "a JSON object"),
    "a list": (["[1]"], 1, "a JSON object"),
    "version": (
        [HEADER.replace('"hicache_recording": 3', '"hicache_recording": 2')],
        1,
        "version 3",
    ),
    "version true": ([HEADER.replace(": 3,", ": true,", 1)], 1, "version 3"),
    "no such component": ([HEADER.replace('"full"', '"gone"')], 1, "expected one of full"),
    "no such policy": ([HEADER.replace("write_through", "gone")], 1, "a configuration"),
    "config field gone": ([HEADER.replace("kv_events", "kv_event")], 1, "config: page_size"),
    "page size text": (
        [HEADER.replace('"page_size": 4', '"page_size": "4"')],
        1,
        "a configuration",
    ),
    "page size 1.5": ([HEADER.replace('"page_size": 4', '"page_size": 1.5')], 1, "whole numbers"),
    "pools without bound": (
        [HEADER.replace('"device_pages": [', '"device_pages": [99999999999, ')],
        1,
        "pages together at most",
    ),
    "no end": ([HEADER, arrived()], 3, "truncated"),
    "line cut": ([HEADER, arrived()[:20]], 2, "a JSON object"),
    "unknown op": ([HEADER, arrived(op="Eval")], 2, "op: one of Arrived"),
    "op a list": ([HEADER, arrived(op=["Arrived"])], 2, "op: one of"),
    "one more field": ([HEADER, arrived(choices=1)], 2, "only op, t, args, d"),
    "too few args": ([HEADER, arrived(args=[0])], 2, "args: 4 values"),
    "a float": ([HEADER, arrived(args=[0.0, [8, "", ""], 4, 0])], 2, "an integer"),
    "true for 1": ([HEADER, arrived(args=[True, [8, "", ""], 4, 0])], 2, "an integer"),
    "below 0": ([HEADER, arrived(args=[-1, [8, "", ""], 4, 0])], 2, "an integer from 0"),
    "key no list": ([HEADER, arrived(args=[0, "AAAA", 4, 0])], 2, "a key"),
    "stride 0": ([HEADER, arrived(args=[0, [0, "", ""], 4, 0])], 2, "a key"),
    "half a row": ([HEADER, arrived(args=[0, [8, "", "AAAA"], 4, 0])], 2, "whole rows"),
    "no base64": ([HEADER, arrived(args=[0, [8, "", "!"], 4, 0])], 2, "base64"),
    "digest": ([HEADER, arrived(d="XYZ")], 2, "8 hexadecimal"),
    "counted": (
        [HEADER, f'{{"op":"end","events":1,"digest":"{EMPTY}"}}'],
        2,
        "events: expected 0",
    ),
    "behind the end": (
        [HEADER, f'{{"op":"end","events":0,"digest":"{EMPTY}"}}', arrived()],
        3,
        "nothing after the end",
    ),
    "tier": (
        [HEADER, arrived(op="EvictWanted", args=[7, "full", 1])],
        2,
        "tier: expected a tier",
    ),
    "ok": ([HEADER, arrived(op="LoadDone", args=[7, 1])], 2, "args: ok: expected true or false"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_recordings_are_refused_in_one_line(fault: str) -> None:
    lines, number, expected = BAD[fault]
    with pytest.raises(CallerError) as caught:
        recording_of([line + "\n" for line in lines])
    message = str(caught.value)
    assert message.startswith(f"t.recording:{number}: ")
    assert "expected " in message
    assert expected in message
    assert "\n" not in message


def test_a_truncated_recording_is_refused() -> None:
    lines, _ = recorded(1, 4)
    text = "".join(lines).encode()
    for cut in range(0, len(text), 97):
        with pytest.raises(CallerError):
            parse("t.recording", text[:cut].splitlines(keepends=True))


def test_long_lines_and_missing_files_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="at most 67108864 bytes"):
        parse("t.recording", [b" " * (MAX_LINE_BYTES + 1)])
    with pytest.raises(CallerError, match="No such file"):
        read_recording(str(tmp_path / "absent"))


def test_events_that_the_core_refuses_are_named() -> None:
    lines, _ = recorded(1, 4)
    records = [json.loads(line) for line in lines]
    twice = [*lines[:2], *lines[1:]] if records[1]["op"] == "Arrived" else lines
    end = json.loads(twice[-1])
    end["events"] += 1
    with pytest.raises(
        CallerError, match=r"t.recording:3: expected an event that the core can take"
    ):
        replay(recording_of([*twice[:-1], json.dumps(end) + "\n"]))
