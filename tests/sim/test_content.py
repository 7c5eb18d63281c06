"""Content of pages: tags are as defined, and the audit notices any page that does not hold its
prefix."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from hicache.core.components import mamba, swa
from hicache.core.config import Config
from hicache.core.types import Key, Pages, Tier
from sim import content
from sim.device.memory import audit
from sim.device.shadow import FreedPages
from sim.errors import WrongBytesError
from sim.keyed_draw import draw
from sim.workload import Job
from sim.world import World

from .cases import MODEL, PROFILE, drawn
from .found_out import raised
from .runs import world_of
from .workloads import PAGE, Prompts, hybrid, shared_prefixes

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


def test_tags_are_as_defined() -> None:
    for stride, space in ((8, ""), (32, "a"), (16, "tenant"), (3, "b"), (5, "")):
        raw = bytes(draw(256, stride, at) for at in range(stride * 4))
        key = Key(raw, stride, space)
        found = content.prefix_tags(key).tolist()
        assert found == _tags(key), f"rows of {stride} bytes"
        assert content.prefix_tags(key.first(0)).tolist() == []
    text = b"partial\x1f7\x1f12"
    assert content.partial_tag(7, 12).tolist() == [_short(text)]
    for layer in (0, 3):
        words = [f"row\x1fswa\x1f{layer}\x1f{word}".encode() for word in range(content.ROW_WORDS)]
        assert content.salts("swa", layer).tolist() == [_short(word) for word in words]
    row = content.rows(np.array([9], dtype=np.uint64), "full", 1)[0].copy()
    row[1] ^= np.uint64(1)
    assert content.tag_of(row, "full", 1) == 9, "the first word names the tag"


def _short(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def _mix(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31


def _tags(key: Key) -> list[int]:
    """The definition in sim/content, on plain integers."""
    width = 8 if key.stride % 8 == 0 else 1
    seed, total, found = _short(b"namespace\x1f" + key.namespace.encode()), 0, []
    for page in range(key.pages):
        row = key.raw[page * key.stride : (page + 1) * key.stride]
        words = [int.from_bytes(row[at : at + width], "little") for at in range(0, len(row), width)]
        position = (page + 1) * _GOLDEN + seed & _WORD
        dot = sum(word * (_mix(at * _GOLDEN & _WORD) | 1) for at, word in enumerate(words, 1))
        total = total + _mix(dot + position & _WORD) & _WORD
        found.append(_mix(total + position & _WORD))
    return found


def test_every_page_is_audited() -> None:
    """A single wrong page on either tier, of any component, ends the audit."""
    case = drawn(0)
    config = Config(
        page_size=PAGE,
        device_pages=(40, 30, 9),
        host_pages=(30, 20, 9),
        components=("full", "swa", "mamba"),
        settings=(swa.Settings(6), mamba.Settings(2 * PAGE, 0)),
    )
    model = hybrid(config.components, 6, MODEL)
    workload = _Named(shared_prefixes(3, 14))
    world = World(workload, config, model, PROFILE, engine=case.engine, options=case.options)
    world.run()
    memory, view = world._machine.memory, world.core.view
    assert memory is not None
    checked, copies = memory.checked, 0
    audit(view, memory)
    for node in view.nodes():
        for index, component in enumerate(view.components):
            for tier in (Tier.DEVICE, Tier.HOST):
                pages = node.pages[tier][index]
                if pages is None:
                    continue
                copies += 1
                place = (tier, component.name)
                for page in pages[[0, -1]]:
                    rows = memory._rows[place][page].copy()
                    for layer in (0, -1):
                        memory._rows[place][page, layer] ^= np.uint64(1)
                        assert raised(lambda: audit(view, memory), WrongBytesError) is not None
                        memory._rows[place][page] = rows
    assert copies > 20
    before = memory.checked
    audit(view, memory)
    assert memory.checked - before == copies, "each copy of each node is compared once"
    assert before > checked
    told = world._whose(int(content.prefix_tags(workload.key(workload.jobs[5], 8))[0]))
    assert told.startswith("page 0 of request "), told
    assert world._whose(1).startswith("content of nobody")


class _Named:
    """A workload whose requests are in two namespaces."""

    def __init__(self, inner: Prompts) -> None:
        self.inner = inner
        self.jobs, self.page_size = inner.jobs, inner.page_size

    def key(self, job: Job, length: int) -> Key:
        key = self.inner.key(job, length)
        return Key(key.raw, key.stride, ("", "tenant")[job.index % 2])


class _Freed:
    """Notes what is said to be free."""

    def __init__(self) -> None:
        self.told: list[tuple[Tier, str, list[int]]] = []

    def freed(self, tier: Tier, component: str, pages: Pages) -> None:
        self.told.append((tier, component, pages.tolist()))


class _Generations:
    """Compares what is said to be free with the generations of all pages, page by page."""

    def __init__(self, noted: _Freed) -> None:
        self.noted, self.before, self.count = noted, dict[tuple[Tier, str], list[int]](), 0

    def on_event(self, event: Any, view: Any) -> None:
        self.noted.told.clear()

    def on_outcomes(self, event: Any, outcomes: Any, view: Any) -> None:
        expected = []
        for tier in (Tier.DEVICE, Tier.HOST):
            for index, name in enumerate(view.config.components):
                now = view.pool(tier, index).generation.tolist()
                old = self.before.get((tier, name))
                if old is not None:
                    new = [page for page, count in enumerate(now) if count != old[page]]
                    expected.append((tier, name, new))
                    self.count += len(new)
                self.before[tier, name] = now
        assert self.noted.told == expected


def test_freed_pages_are_told() -> None:
    case, noted = drawn(3), _Freed()
    generations = _Generations(noted)
    observers = (FreedPages(noted), generations)  # type: ignore[arg-type]
    world_of(
        case,
        observers=observers,
    ).run()
    assert generations.count > 20
