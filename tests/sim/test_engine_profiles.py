"""Engine profiles: the lookup, and users' own files. What the rules of a profile do is in the times
of test_simulator."""

import json
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from sim import engine_profiles
from sim.engine_profiles import EngineProfile


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
    newest = engine_profiles.ENGINES["sglang"][-1].version
    assert engine_profiles.get("sglang@nightly").version == newest
    assert engine_profiles.get("sglang").version == newest


def _written(tmp_path: Path, document: object) -> str:
    path = tmp_path / "mine.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_a_users_engine_is_read(tmp_path: Path) -> None:
    mine = {"name": "mine", "batching": "separate", "chunked": False, "step_host_ns": 5}
    profile = engine_profiles.get(_written(tmp_path, mine))
    assert profile == EngineProfile("mine", batching="separate", chunked=False, step_host_ns=5)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("[1]", "expected an object, found a list of 1"),
        ("{", "expected an engine profile in JSON, found Expecting property name"),
        ({}, "name: expected a name, found nothing"),
        ({"name": "m", "step_ns": 1}, "expected only name, version, batching"),
        ({"name": "m", "requested_version": "1"}, "requested_version: expected none in a file"),
        ({"name": "m", "launch_ns": 1.5}, "launch_ns: expected an integer from 0 to 1099511627775"),
        ({"name": "m", "chunked": 1}, "chunked: expected true or false, found 1"),
        ({"name": "m", "memory_permille": 1001}, "memory_permille: expected an integer from 1 to"),
        ({"name": "m", "all_reduce": "ring"}, "all_reduce: expected one of custom, nccl"),
        ('{"name": "m", "name": "n"}', "expected an engine profile in JSON, found the key"),
    ],
)
def test_a_wrong_file_names_its_field(tmp_path: Path, document: object, text: str) -> None:
    path = _written(tmp_path, document)
    with pytest.raises(CallerError) as error:
        engine_profiles.get(path)
    assert str(error.value).startswith(f"{path}: {text}")
    assert "\n" not in str(error.value)
