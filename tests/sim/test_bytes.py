"""The simulated bytes: content, memory and the detector of hazards. Wrong programs are found out,
and right ones pass."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import Literal

import numpy as np

from hicache.core.errors import About
from hicache.core.types import Pages, Tier
from hicache.devices.base import Area, Direction, Mark, Stream
from sim import content
from sim.device.hazards import Hazards
from sim.device.memory import Memory
from sim.errors import HazardError, WrongBytesError
from sim.keyed_draw import draw

from .found_out import found_out, raised

LAYERS = 2
ALL = (0, LAYERS)
DEVICE, HOST = (Tier.DEVICE, "full"), (Tier.HOST, "full")
CAPACITIES = {DEVICE: 8, HOST: 8}
D2H, H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE


def pages(*numbers: int) -> Pages:
    return np.array(numbers, dtype=np.int64)


def test_rows_name_their_tag() -> None:
    tags = np.array([5, 1 << 63, 77], dtype=np.uint64)
    seen = set()
    for component in ("full", "swa"):
        for layer in range(3):
            rows = content.rows(tags, component, layer)
            assert rows.shape == (3, content.ROW_WORDS)
            assert [content.tag_of(row, component, layer) for row in rows] == tags.tolist()
            seen.update(rows.ravel().tolist())
            assert content.seal(rows) == sha256(rows.tobytes()).digest()
            assert content.seal(rows[:, ::-1]) == sha256(rows[:, ::-1].tobytes()).digest()
    assert len(seen) == 2 * 3 * 3 * content.ROW_WORDS


def test_memory_compares() -> None:
    memory = Memory({**CAPACITIES, (Tier.DEVICE, "swa"): 3}, LAYERS)
    assert memory.places == (DEVICE, HOST, (Tier.DEVICE, "swa"))
    tags = np.array([11, 12], dtype=np.uint64)
    assert memory.settled(DEVICE).tolist() == list(range(8)), "before anything is written"
    memory.claim(DEVICE, pages(1, 2), tags, ALL)
    assert memory.settled(DEVICE).tolist() == [0, 3, 4, 5, 6, 7], "claimed, and not written"
    memory.write(DEVICE, pages(1, 2), tags, ALL, "w")
    assert memory.settled(DEVICE).tolist() == list(range(8))
    assert memory.claimed(DEVICE, pages(2, 0), (1, 2)).tolist() == [[12, 0]]
    assert memory.claim_copy(DEVICE, HOST, (pages(1, 2), pages(5, 4)), (1, 2)).tolist() == [
        [11, 12]
    ]
    assert memory.claimed(HOST, pages(4, 5), ALL).tolist() == [[0, 0], [12, 11]]
    words = (0, 2 * content.ROW_WORDS)
    moved = memory.fetch(DEVICE, pages(1, 2), words, (1, 2))
    memory.store(HOST, pages(5, 4), words, (1, 2), moved)
    assert memory.settled(HOST).tolist() == list(range(8))
    assert (
        memory.block(HOST, pages(4, 5), (1, 2))[0] == memory.block(DEVICE, pages(2, 1), (1, 2))[0]
    ).all()
    assert memory.tags_of("full").tolist() == [0, 11, 12]
    assert memory.tags_of("swa").tolist() == [0]
    checked = memory.checked
    memory.verify(HOST, pages(5, 4), tags, (1, 2), "v")
    memory.verify(HOST, pages(), tags[:0], (1, 2), "v")
    memory.write(HOST, pages(), tags[:0], ALL, "w")
    assert (checked, memory.checked) == (1, 2)
    whole = memory.block(DEVICE, pages(1), ALL)[:, 0]
    assert memory.digest(DEVICE, 1) == sha256(np.ascontiguousarray(whole).tobytes()).digest()
    made = [memory.scribble_tags(pages(0, 1)).tolist(), memory.scribble_tags(pages(3)).tolist()]
    assert len({*made[0], *made[1]}) == 3
    memory.whose = lambda tag: f"T{tag}"
    error = found_out(
        lambda: memory.verify(
            DEVICE, pages(1, 2), np.array([11, 13], dtype=np.uint64), (1, 2), "v"
        ),
        WrongBytesError,
        "v: device page 2 of full, layer group 1: expected T13, found T12; 1 of 2 rows",
    )
    assert (error.exit_code, error.about) == (12, (About("page", 2, 0, "full"),))
    memory.store(DEVICE, pages(1), (0, 1), (0, 1), memory.fetch(DEVICE, pages(2), (0, 1), (0, 1)))
    found_out(
        lambda: memory.verify(DEVICE, pages(1), tags[:1], ALL, "v"),
        WrongBytesError,
        "device page 1 of full, layer group 0: expected T11, found T12 (torn: words of several "
        "writers); 1 of 2 rows",
    )


def test_conflicts_are_found() -> None:
    """A conflict is raised exactly where no path orders it, by sets of what a stream saw."""
    for seed in range(150):
        hazards, asked = Hazards(CAPACITIES, LAYERS), 0
        for stream in range(3):
            hazards.stream(Stream(stream), f"s{stream}")
        known: list[set[int]] = [set(), set(), set()]
        host, marks = set[int](), list[set[int]]()
        done: list[tuple[int, set[tuple[int, int]], str, int]] = []
        for step in range(14):
            kind, stream = draw(6, seed, step, "kind"), draw(3, seed, step, "stream")
            if kind == 0:
                hazards.record(Stream(stream), Mark(len(marks)))
                marks.append(set(known[stream]))
            elif kind in (1, 2) and marks:
                mark = draw(len(marks), seed, step, "mark")
                if kind == 1:
                    hazards.wait(Stream(stream), Mark(mark))
                    known[stream] |= marks[mark]
                else:
                    hazards.observed(Mark(mark))
                    host |= marks[mark]
            elif kind > 2:
                numbers = sorted(
                    {draw(4, seed, step, at) for at in range(draw(3, seed, step, "n"))}
                )
                mode: Literal["r", "w"] = "w" if draw(2, seed, step, "mode") else "r"
                layers = ((0, 1), (1, 2), (0, 2))[draw(3, seed, step, "layers")]
                cells = {(page, layer) for page in numbers for layer in range(*layers)}
                before = known[stream] | host
                clash = [
                    (how, mode)
                    for number, other, how, by in done
                    if cells & other
                    and "w" in (mode, how)
                    and number not in before
                    and by != stream
                ]
                area = Area(*DEVICE, pages(*numbers), layers)
                asked += 1
                error = raised(
                    partial(hazards.access, Stream(stream), area, mode, "new"), HazardError
                )
                if error is not None:
                    assert clash, f"program {seed}: no conflict, but {error}"
                    rules = {("w", "r"): "RAW", ("r", "w"): "WAR", ("w", "w"): "WAW"}
                    assert error.rule in {rules[pair] for pair in clash}
                    break
                assert not clash, f"program {seed}: a conflict that was not found"
                known[stream] = before | {step}
                done.append((step, cells, mode, stream))
        assert hazards.checked == asked


def test_hazards_have_a_story() -> None:
    hazards = Hazards(CAPACITIES, LAYERS, streams=2)
    for stream in range(2):
        hazards.stream(Stream(stream), f"s{stream}")
        hazards.stream(Stream(stream), "again")
    found_out(
        lambda: hazards.stream(Stream(2), "third"),
        HazardError,
        "hazard detector: made for 2 streams, third is one more",
    )
    area = Area(*DEVICE, pages(3, 5, 6), ALL)
    hazards.access(Stream(1), Area(*DEVICE, pages(1), ALL), "w", "first")
    hazards.access(Stream(0), Area(*DEVICE, pages(6), ALL), "w", "ordered")
    hazards.record(Stream(0), Mark(0))
    hazards.wait(Stream(1), Mark(0))
    hazards.access(Stream(0), Area(*DEVICE, pages(3), ALL), "w", "load of flights 24..25")
    hazards.access(Stream(0), Area(*DEVICE, pages(5), (1, 2)), "w", "backup of flight 9")
    error = found_out(
        lambda: hazards.access(Stream(1), area, "r", "prefill of request 7"),
        HazardError,
        "read by 'prefill of request 7' on stream s1 is not ordered after the write by 'backup of "
        "flight 9' on stream s0: device pages [3, 5] of full (2 in all), layer groups 0..1",
        "RAW",
    )
    page = About("page", 3, 0, "full")
    assert error.about == (page, About("request", 7), About("flight", 9)), error.about
    assert error.exit_code == 13
