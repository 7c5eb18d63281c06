"""A request on a path of many nodes takes steps in proportion to the nodes, and no more."""

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Matched, Prefill
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import AdmitWanted, Arrived, Finished, MatchWanted, PrefillDone
from hicache.core.types import Key


def serve(core: Core, request: int, tokens: Any) -> None:
    key, length = Key.from_tokens(tokens, 1), len(tokens)
    core.handle(Arrived(request, key, length, length - 1))
    prefill = core.handle(AdmitWanted(request, length))[-1]
    assert isinstance(prefill, Prefill)
    core.handle(PrefillDone(prefill.transfer))
    core.handle(Finished(request, key, length))


def lines_per_node(nodes: int) -> float:
    """Lines of the core that run when a path of this many nodes of two pages is asked for again."""
    core = Core(Config(page_size=1, device_pages=(4 * nodes,)))
    tokens = np.arange(2 * nodes)
    serve(core, 0, tokens)
    for request in range(1, nodes):  # each branches off, so that the path has one node more
        serve(core, request, np.append(tokens[: 2 * (nodes - request)], -request))
    assert sum(1 for _ in core.view.nodes()) == 2 * nodes - 1
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if "hicache" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        serve(core, nodes, tokens)
    finally:
        sys.settrace(before)
    return lines / nodes


def test_the_steps_for_each_node_of_a_path_do_not_grow() -> None:
    short, long = lines_per_node(100), lines_per_node(800)
    assert 10 < long < 1.05 * short


@pytest.mark.parametrize("shared", [1, 4095, 4096, 4097, 9000, 9999])
def test_a_long_run_is_reused_up_to_the_page_that_differs(shared: int) -> None:
    """Of a run of 10,000 words, which are compared some thousands at once."""
    core = Core(Config(page_size=1, device_pages=(20_001,)))
    tokens = np.arange(10_000)
    serve(core, 0, tokens)
    tokens[shared] = -1
    core.handle(Arrived(1, Key.from_tokens(tokens, 1), len(tokens), len(tokens) - 1))
    (prefill,) = core.handle(MatchWanted(1))
    assert isinstance(prefill, Matched)
    assert prefill.device_pages == shared
