"""`--semantics kvcache-simulator` against that tool itself, version 0.1.3, to the token.

The tool is not part of the project; where it is not installed, its figures stand below.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings

from tests.conversation import conversation
from traces.curves.curves import CurveOptions, curves_of
from traces.curves.kvcache_simulator import NAME, Peer
from traces.formats._open import open_trace
from traces.formats.base import Trace

from .reference import BLOCK, random_traces
from .rig import read

# capacity in pages of 512 tokens: hit tokens of FIFO, LRU and the optimum, as kvcache-simulator
# 0.1.3 says (C++ backend, 2026-11-22) for the conversation trace; 67,915,607 tokens are measured
GOLDEN = {
    3: (521_216, 3_080_192, 3_140_333),
    51: (2_238_976, 3_080_192, 4_173_837),
    204: (2_800_712, 3_082_824, 6_421_919),
    1_409: (3_263_837, 3_320_864, 15_614_456),
    5_637: (8_301_260, 8_928_755, 25_320_951),
    13_107: (14_697_452, 16_995_095, 27_038_068),
    22_550: (18_868_426, 21_501_492, 27_038_068),
}
CEILING = 27_038_068
NAMES = {"fifo": "fifo", "lru": "lru", "optimum": "optimal"}  # ours and theirs


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    """The package kvcache_sim, version 0.1.3. Skips the test without it."""
    reason = "kvcache-simulator 0.1.3 is not installed: pip install kvcache-simulator==0.1.3"
    pytest.importorskip("kvcache_sim", reason=reason, exc_type=ImportError)
    if importlib.metadata.version("kvcache-simulator") != "0.1.3":
        pytest.skip(reason)
    for name in ("trace", "plan", "policies", "cpp_backend"):
        importlib.import_module(f"kvcache_sim.{name}")
    return importlib.import_module("kvcache_sim")


@pytest.fixture(scope="module")
def trace() -> Trace:
    return open_trace(str(conversation()))


@pytest.mark.one_in(16)
def test_the_conversation_trace_has_the_published_figures(trace: Trace) -> None:
    options = CurveOptions(
        policies=("fifo", "optimum", "bound"), capacities=tuple(GOLDEN), semantics=NAME
    )
    found = curves_of(trace, trace.paged(BLOCK), options)
    assert found.input_tokens == 67_915_607
    assert found.lru.unbounded == CEILING
    names = ("fifo", "lru", "optimum")
    for place, expected in enumerate(GOLDEN.values()):
        assert tuple(found.hit_tokens[name][place] for name in names) == expected
    assert found.hit_tokens["bound"] == [CEILING] * len(GOLDEN)


def test_the_tool_itself_says_the_same_of_the_conversation_trace(theirs: Any) -> None:
    if shutil.which("c++") is None:
        pytest.skip("kvcache-simulator compiles its core with c++, which is not installed")
    parsed = theirs.trace.parse_trace_file(str(conversation()), block_size=BLOCK)
    said = theirs.cpp_backend.run_cpp_sweep(
        parsed,
        capacities=list(GOLDEN),
        policies=list(NAMES.values()),
        warmup_requests=parsed.request_count // 2,
    )
    assert said.ceiling.hitTokens == CEILING
    for capacity, expected in GOLDEN.items():
        figures = [said.results[name, capacity].hitTokens for name in NAMES.values()]
        assert tuple(figures) == expected


@settings(max_examples=60, deadline=None)
@given(records=random_traces())
def test_drawn_traces_have_the_same_figures_at_every_capacity(
    theirs: Any, records: list[dict[str, Any]]
) -> None:
    """Also where a request is larger than the cache. The tool has no figure for a capacity that the
    first half does not fill; there ours are those of the ceiling or less."""
    peer = Peer(read(*records).paged(BLOCK))
    lines = [json.dumps(record) for record in records]
    plan = theirs.plan.build_execution_plan(theirs.trace.parse_trace_lines(lines, block_size=BLOCK))
    assert peer.curve.unbounded == theirs.policies.simulate_ceiling(plan).hitTokens
    for capacity in range(1, plan.unique_blocks + 1):
        for ours, name in NAMES.items():
            said = theirs.policies.simulate_policy(plan, name, capacity)
            found = peer.hit_tokens(ours, capacity)
            if said.measurementMode == "fixed_window":
                assert found == said.hitTokens, (ours, capacity)
            assert found <= peer.curve.unbounded
