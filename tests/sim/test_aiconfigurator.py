"""The time model that asks AIConfigurator's tables: its sums, its names, and what they lack."""

import importlib
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest

from hicache import models
from hicache.core.errors import CallerError
from sim import engine_profiles
from sim import hardware as profile
from sim.times.base import Parallelism, make, step_ns

NAME = "aiconfigurator"
INSTALLED = pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed"
)
H100 = profile.get("h100")


@INSTALLED
@pytest.mark.parametrize(
    ("name", "system", "tp"),
    [
        *(("llama-3.1-8b", "h100_sxm", 1), ("llama-3.1-70b", "h100_sxm", 4)),
        *(("gpt-oss-120b", "h200_sxm", 2), ("deepseek-v3", "h200_sxm", 8)),
    ],
)
def test_a_pass_takes_what_the_library_says(name: str, system: str, tp: int) -> None:
    model, backend = models.get(name), "vllm"
    names = importlib.import_module(f"sim.times.{NAME}")
    core = pytest.importorskip("aiconfigurator_core", exc_type=ImportError)
    compiling = pytest.importorskip("aiconfigurator_core.sdk.engine", exc_type=ImportError)
    hardware = profile.get(next(item for item, theirs in names.SYSTEMS.items() if theirs == system))
    shares = {"moe_tp_size": tp, "moe_ep_size": 1} if model.experts else {}
    modes = next(iter(names.precisions(model, hardware, backend)))
    spec = compiling.compile_engine(
        names.model_of(model), system, backend, tp_size=tp, **shares, **modes
    )
    theirs = core.AicEngine.from_spec(spec)
    ours = make(NAME, model, hardware, Parallelism(tp), engine_profiles.get(backend))

    prefill = theirs.predict_prefill_latency(1, 2048)
    cached = theirs.predict_prefill_latency(1, 3072, 2048)
    decode = theirs.decode_step_latency(16, 2047, 2)
    assert step_ns(ours, [(0, 2048)], 0, 0) == pytest.approx(prefill * 1e6, rel=0.02)
    assert step_ns(ours, [(2048, 3072)], 0, 0) == pytest.approx(cached * 1e6, rel=0.02)
    assert step_ns(ours, [], 16, 16 * 2048) == pytest.approx(decode * 1e6, rel=0.01)
    mixed = step_ns(ours, [(0, 2048)], 16, 16 * 2048)
    assert step_ns(ours, [(0, 2048)], 0, 0) < mixed < (prefill + decode) * 1e6
    assert system in ours.label
    assert backend in ours.label


@INSTALLED
def test_what_the_library_does_not_know_is_refused() -> None:
    names = importlib.import_module(f"sim.times.{NAME}")
    llama = models.get("llama-3.1-8b")
    assert names.model_of(replace(llama, name="mine")) == "meta-llama/Meta-Llama-3.1-8B"
    for refused in (
        lambda: names.model_of(replace(llama, hidden_size=4097)),
        lambda: names.model_of(models.get("gemma-3-27b")),
        lambda: names.system_of("h20"),
        lambda: next(names.precisions(models.stored(llama, "mxfp4"), H100, "vllm")),
    ):
        with pytest.raises(CallerError, match=r"--times aiconfigurator: .*choose --times roofline"):
            refused()


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    monkeypatch.delitem(sys.modules, f"sim.times.{NAME}", raising=False)
    with pytest.raises(
        CallerError, match=r"expected what aiconfigurator needs.*pip install 'hicache\[times\]'"
    ):
        make(NAME, models.get("llama-3.1-8b"), H100)
