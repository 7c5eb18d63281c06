"""Mooncake lines of agents, which wait for others instead of having a time."""

from __future__ import annotations

from typing import Any

import pytest

from hicache.core.errors import CallerError

from .rig import read


def agent(name: str, waits: object = None, **more: Any) -> dict[str, Any]:
    """A line of an agent's trace. waits: for what; else it has a time."""
    start = {"timestamp": 0} if waits is None else {"wait_for": waits}
    sizes = {"input_length": 600, "output_length": 2, "hash_ids": [1, 3]}
    return {"request_id": name, **start, **sizes, **more}


def test_a_request_that_waits_for_others_follows_them() -> None:
    trace = read(
        agent("a"),
        agent("b", ["a"], tool_wait_ms=1.5, timestamp=900),
        agent("c", "b"),
        agent("d", ["c", "b"], tool_wait_ms=2),
        agent("e", [], timestamp=7, tool_wait_ms=0),
    )
    assert [job.after for job in trace.jobs] == [-1, 0, 1, 2, -1]
    assert [job.arrival_ns for job in trace.jobs] == [0, 1_500_000, 0, 2_000_000, 7_000_000]
    [note] = trace.notes
    assert note.startswith("1 requests wait for several others")


def test_a_wait_that_cannot_be_played_is_told() -> None:
    [note] = read(agent("a"), agent("b", [], timestamp=3, tool_wait_ms=2)).notes
    assert "tool_wait_ms and wait for no other" in note
    for wrong, said in (
        (agent("b", ["z"]), "wait_for: the request_id of an earlier line"),
        (agent("b", ["b"]), "wait_for: the request_id of an earlier line"),
        (agent("b", 1.5), "wait_for: int . str . array, found 1.5"),
        (agent("b", [["a"]]), "wait_for"),
        (agent("b", ["a"], delay=3), "either wait_for or delay"),
        (agent("b", ["a"], tool_wait_ms=-1), "tool_wait_ms"),
    ):
        with pytest.raises(CallerError, match=said):
            read(agent("a"), wrong)
