"""Hardware profiles: what a measured one must say, and what it takes from the published one; the
link; and no kernel above the data sheet. Engine profiles: the lookup, and users' own files."""

import itertools
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hicache import models
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.devices.base import Direction
from sim import engine_profiles, fitted, hardware
from sim.engine_profiles import EngineProfile
from sim.fitted import Factor
from sim.hardware import Curve
from sim.options import WorldOptions
from sim.physics import defaults
from sim.replica import build

H100 = hardware.get("h100")
_NUMBERS = (
    *("flops_per_s", "hbm_bytes_per_s", "hbm_bytes", "link_bytes_per_s", "link_shared_permille"),
    *("copy_latency_ns", "compute_permille", "hbm_permille", "link_permille", "step_overhead_ns"),
)


def integer(accelerator: str = "x") -> dict[str, Any]:
    """A document with every section, of a machine that reaches half of an H100's bf16 products."""
    numbers = {name: getattr(H100, name) for name in _NUMBERS}
    return {
        "name": "mine",
        "hardware": numbers | {"flops_per_s": H100.flops_per_s // 2},
        "curves": {"d2h": [[1, 2], [3, 4]], "h2d": [[5, 6], [7, 8], [9, 10]]},
        "geometry": {"page_size": 64, "model": "tiny", "shapes": [{"pool": "kv", "layers": 2}]},
        "machine": {"accelerator": accelerator},
        "made": {"command": "c"},
        "measured": {"copies": 1},
    }


def written(folder: Path, content: object) -> str:
    path = folder / "mine.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_measured_profile_reads_back(tmp_path: Path) -> None:
    document, content = hardware.seal(integer()), {"hicache_profile": 2, **integer()}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert document == content | {"hash": sha256(text.encode()).hexdigest()}
    path = written(tmp_path, document)
    measured, profile = hardware.read(path), hardware.get(path)
    curves = {"d2h": Curve(((1, 2), (3, 4))), "h2d": Curve(((5, 6), (7, 8), (9, 10)))}
    sections = (measured.geometry, measured.machine, measured.made, measured.figures)
    assert sections == tuple(
        integer()[name] for name in ("geometry", "machine", "made", "measured")
    )
    assert (measured.path, measured.name, measured.hash) == (path, "mine", document["hash"])
    assert (measured.hardware, measured.curves) == (integer()["hardware"], curves)
    assert profile == hardware.of(measured)
    assert profile.name == f"mine@{document['hash'][:12]}"
    assert (profile.curves, profile.geometry) == (curves, integer()["geometry"])
    assert {name: getattr(profile, name) for name in _NUMBERS} == integer()["hardware"]
    assert [hardware.is_path(name) for name in ("h100", "a.b", "a/b")] == [False, True, True]


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        *((name, None, ...) for name in integer()),
        ("hardware", "hbm_bytes", ...),
        ("hardware", "more", 1),
        ("hardware", "flops_per_s", 1.5),
        *(("geometry", None, []), ("machine", None, None), ("made", None, "x")),
        ("measured", None, 3),
    ],
)
def test_a_fault_of_a_sealed_profile_is_told(
    section: str, field: str | None, value: Any, tmp_path: Path
) -> None:
    document = integer()
    inner, name = (document, section) if field is None else (document[section], field)
    inner[name] = value
    if value is ...:
        del inner[name]
    path = written(tmp_path, hardware.seal(document))
    with pytest.raises(CallerError) as error:
        hardware.read(path)
    assert str(error.value).startswith(f"{path}: a fault in this profile (")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((text, "no hardware profile") for text in ("{", "[" * 10**5, "[]", "{}")),
        (hardware.seal(integer()) | {"hicache_profile": 1}, "not a profile of version 2"),
        (hardware.seal(integer()) | {"name": "yours"}, "changed since it was sealed"),
        (hardware.seal(integer()) | {"hash": None}, "changed since it was sealed"),
        ({"hicache_profile": 2, **integer()}, "changed since it was sealed"),
    ],
    ids=range(8),
)
def test_another_file_is_refused(content: object, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(CallerError) as error:
        hardware.get(path)
    assert str(error.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("accelerator", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
    ],
)
def test_a_measured_profile_has_what_was_not_measured_from_the_published_one(
    accelerator: str, name: str, tmp_path: Path
) -> None:
    path = written(tmp_path, hardware.seal(integer(accelerator)))
    profile, known = hardware.get(path), hardware.get(name)
    for field in ("ranks_link", "ranks_link_bytes_per_s"):
        assert getattr(profile, field) == getattr(known, field)
    for field in ("fp8_flops_per_s", "fp4_flops_per_s"):
        share = profile.flops_per_s / known.flops_per_s
        assert getattr(profile, field) == pytest.approx(share * getattr(known, field), abs=1)


@pytest.mark.parametrize(
    ("times", "permille"), [("pure-roofline", 1806), ("roofline", 1616), ("aiconfigurator", 1616)]
)
def test_both_directions_share_the_link_as_measured_but_for_runs_that_repeat_earlier_ones(
    times: str, permille: int
) -> None:
    config = Config(page_size=64, device_pages=(8,), host_pages=(8,))
    machine = build(config, models.get("llama-3.1-8b"), H100, 1, WorldOptions(times=times))
    count = 1 << 30
    for direction in Direction:
        machine.links[0].send(direction, count, [lambda: None])
    while machine.clock.next_ns() >= 0:
        machine.clock.step()
    rate = 2 * count / (machine.clock.now_ns - H100.copy_latency_ns) * 1e9
    assert rate == pytest.approx(H100.reached_link_bytes_per_s * permille / 1000, rel=0.001)


def test_no_kernel_reaches_more_than_the_data_sheet() -> None:
    """Of models with factors of their own, and of one without."""
    labels = {label for factor in fitted.factors() for label in factor.where}
    names = [*sorted({*models.names()} & labels), "yi-34b"]
    engines = [profile for known in engine_profiles.ENGINES.values() for profile in known]
    pairs = [*itertools.product(hardware.names(), engines)][::3]
    for (machine, profile), model in zip(pairs, itertools.cycle(names)):
        used = fitted.engine(profile, machine, model)
        kernels = fitted.roofline(hardware.get(machine), used, model).values()
        assert len(kernels) > 30
        assert max(max(kernel.compute, kernel.memory) for kernel in kernels) <= 1.0, (
            machine,
            profile,
            model,
        )


def test_a_fit_that_wants_more_is_held_at_the_peak() -> None:
    wild = (Factor("decode.*.memory", ("hopper",), 3.0),)
    roofline = fitted.roofline(H100, engine_profiles.get("plain"), "llama-3.1-8b", wild)
    assert roofline["decode.kv"].memory == roofline["decode.latent_fp8"].memory == 1.0
    assert roofline["decode.kv"].compute == defaults("hopper")["decode.kv"].compute


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


def test_a_users_engine_is_read(tmp_path: Path) -> None:
    mine = {"name": "mine", "batching": "separate", "chunked": False, "step_host_ns": 5}
    profile = engine_profiles.get(written(tmp_path, mine))
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
    path = written(tmp_path, document)
    with pytest.raises(CallerError) as error:
        engine_profiles.get(path)
    assert str(error.value).startswith(f"{path}: {text}")
    assert "\n" not in str(error.value)
