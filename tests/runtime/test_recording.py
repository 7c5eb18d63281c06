"""Recordings replay exactly, decisions depend on the order of events alone, faults are named."""

import json
from collections.abc import Iterator
from dataclasses import replace
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import AdmitWanted, Arrived, Event
from hicache.core.types import Key, Pages, Record, Tier
from hicache.runtime.config_document import MAY_LACK, config_of, document, written
from hicache.runtime.driver import Driver, ImmediateExecutor
from hicache.runtime.encoding import Decisions, event_bytes
from hicache.runtime.recording import (
    CHECK_EVERY,
    MAX_LINE_BYTES,
    DivergedError,
    Recorder,
    Recording,
    as_json,
    parse,
    replay,
)
from sim.options import WorldOptions
from sim.world import World
from tests.sim.rig import CONFIGURATIONS, MODEL, PROFILE
from tests.sim.workloads import hybrid, shared_prefixes
from tests.tiny import configured

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


@settings(max_examples=10, deadline=None)
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


def test_long_runs_have_intermediate_digests() -> None:
    lines, digest = recorded(5, 60)
    recording = recording_of(lines)
    assert len(recording.checks) == 1 + recording.events // CHECK_EVERY > 1
    assert replay(recording) == digest
    assert recording.made == {"seed": 5}


KEY = Key.from_tokens(range(8), 4, namespace="lora é\n")


def sample(hint: Any) -> Any:
    """A value of this type."""
    if get_origin(hint) is Literal:
        return get_args(hint)[-1]
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        return (sample(inner[0]),) if inner[-1] is ... else tuple(map(sample, inner))
    if get_origin(hint) in (Union, UnionType):
        return sample(get_args(hint)[0])
    if hint == Pages:
        return np.array([5, 6])
    if hasattr(hint, "_fields") and hint is not Key:
        return hint(*(sample(item) for item in get_type_hints(hint).values()))
    return {int: 3, str: "a", bool: False, bytes: b"ab", Tier: Tier.HOST, Key: KEY}[hint]


def others(value: Any) -> Iterator[Any]:
    """The value with each part of it changed, one after the other."""
    if isinstance(value, bool | Tier):
        yield type(value)(1 - value)
    elif isinstance(value, np.ndarray):
        yield from (value + 1, value[:1], np.array([5, -6]))
    elif isinstance(value, Key):
        yield from (value.first(1), value._replace(namespace="a"))
    elif isinstance(value, tuple | Record):
        for at, _ in enumerate(value):
            for other in others(value[at]):
                parts = [*value[:at], other, *value[at + 1 :]]
                yield type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if not hasattr(value, "_fields"):
            yield (*value, *value)
    else:
        yield value + value  # a number, a name or bytes


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_is_recorded_exactly(kind: Any) -> None:
    items = [sample(kind), *others(sample(kind))]
    assert len({event_bytes(event) for event in items}) == len(items)
    for event in items:
        lines: list[str] = []
        recorder = Recorder(CONFIG, lines.append, lambda: 77)
        recorder.on_event(event, Core(CONFIG).view)
        recorder.on_outcomes(event, [], Core(CONFIG).view)
        recorder.close()
        (step,) = recording_of(lines).steps
        assert step.event == event
        assert type(step.event) is type(event)
        assert step.time_ns == 77


def digest_of(*answers: list[Outcome]) -> str:
    decisions = Decisions()
    for outcomes in answers:
        decisions.add(outcomes)
    return decisions.digest()


@pytest.mark.parametrize("kind", get_args(Outcome), ids=lambda kind: kind.__name__)
def test_every_field_of_every_decision_counts(kind: Any) -> None:
    """Outcomes that differ in one place, and where one ends and the next begins."""
    item = sample(kind)
    answers = [[other] for other in others(item)] + [[], [item], [item, item]]
    assert len({digest_of(outcomes) for outcomes in answers}) == len(answers)
    assert digest_of([item], [item]) != digest_of([item, item])


def test_later_settings_are_written_where_they_are_not_the_usual_ones() -> None:
    """So files from before there were these are still read, and unchanged when written again."""
    assert config_of(written(CONFIG)) == CONFIG
    assert not written(CONFIG).keys() & MAY_LACK.keys()
    for name, usual in MAY_LACK.items():
        value = {str: "timeout", tuple: (6,), bool: not usual}.get(type(usual), 7)
        config = replace(CONFIG, write_policy="write_back", **({"storage": True} | {name: value}))
        assert name in written(config)
        assert config_of(written(config)) == config


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


HEADER = json.dumps({"hicache_recording": 3, "config": document(CONFIG), "made": {}})
EMPTY = "0" * 32


def arrived(**changes: Any) -> str:
    key = as_json(Key.from_tokens(range(4), 4))
    return json.dumps({"op": "Arrived", "t": 0, "args": [0, key, 4, 0], "d": "0" * 8, **changes})


KEY_OF = [8, "", "AAAA"]
BAD: dict[str, tuple[list[str], int, str]] = {
    "empty": ([], 1, "truncated"),
    "an older recording": (['{"hicache_tape": 2}'], 1, "unknown field `hicache_tape`"),
    "version": ([HEADER.replace('recording": 3', 'recording": 2')], 1, "Invalid enum value 2"),
    "page size 1.5": ([HEADER.replace('"page_size": 4', '"page_size": 1.5')], 1, "whole number"),
    "pools without bound": (
        [HEADER.replace('"device_pages": [24', '"device_pages": [99999999999')],
        1,
        "pages together at most",
    ),
    "no end": ([HEADER, arrived()], 3, "truncated"),
    "line cut": ([HEADER, arrived()[:20]], 2, "JSON is malformed"),
    "unknown op": ([HEADER, arrived(op="Eval")], 2, "op: expected one of Arrived"),
    "a float": ([HEADER, arrived(args=[0.0, [8, "", ""], 4, 0])], 2, "Expected `int`"),
    "half a row": ([HEADER, arrived(args=[0, KEY_OF, 4, 0])], 2, "whole rows"),
    "digest": ([HEADER, arrived(d="XYZ")], 2, "matching regex"),
    "counted": ([HEADER, f'{{"op":"end","events":1,"digest":"{EMPTY}"}}'], 2, "events: expected 0"),
    "behind the end": (
        [HEADER, f'{{"op":"end","events":0,"digest":"{EMPTY}"}}', arrived()],
        3,
        "behind the end",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_recordings_are_refused_in_one_line(fault: str) -> None:
    lines, number, expected = BAD[fault]
    with pytest.raises(CallerError) as caught:
        recording_of([line + "\n" for line in lines])
    message = str(caught.value)
    assert message.startswith(f"t.recording:{number}: ")
    assert expected in message
    assert "\n" not in message


def test_a_truncated_recording_is_refused() -> None:
    lines, _ = recorded(1, 4)
    text = "".join(lines).encode()
    for cut in range(0, len(text) - 1, 97):
        with pytest.raises(CallerError):
            parse("t.recording", text[:cut].splitlines(keepends=True))


def test_long_lines_are_refused_in_one_line() -> None:
    with pytest.raises(CallerError, match="too long"):
        parse("t.recording", [b" " * (MAX_LINE_BYTES + 1)])
