"""Content of pages: a tag names a prefix, and the audit notices any page that does not hold its
prefix."""

from __future__ import annotations

from itertools import product

import numpy as np

from hicache.core.components import MambaSettings, SwaSettings
from hicache.core.config import Config
from hicache.core.types import Key, Tier
from sim import content
from sim.device.memory import audit
from sim.errors import WrongBytesError
from sim.workload import Job
from sim.world import World

from .cases import MODEL, PROFILE, drawn
from .found_out import raised
from .workloads import PAGE, Prompts, hybrid, shared_prefixes


def test_tags_name_a_prefix() -> None:
    """Equal prefixes of a namespace have equal tags, and nothing else has."""
    seen: dict[tuple[int, int], tuple[str, bytes]] = {}
    for stride, space in product((8, 32, 3, 5), ("", "a", "tenant")):
        for text in (bytes(4 * stride), bytes(range(4 * stride)), bytes(range(stride)) * 4):
            key = Key(text, stride, space)
            tags = content.prefix_tags(key).tolist()
            for pages in range(5):
                assert content.prefix_tags(key.first(pages)).tolist() == tags[:pages]
            for page, tag in enumerate(tags, 1):
                name = space, text[: page * stride]
                assert seen.setdefault((stride, tag), name) == name
    assert len(seen) == 12 * (4 + 4 + 3)
    assert content.partial_tag(7, 12) != content.partial_tag(7, 13)


def test_every_page_is_audited() -> None:
    """A single wrong page on either tier, of any component, ends the audit."""
    case = drawn(0)
    config = Config(
        page_size=PAGE,
        device_pages=(40, 30, 9),
        host_pages=(30, 20, 9),
        components=("full", "swa", "mamba"),
        settings=(SwaSettings(6), MambaSettings(2 * PAGE, 0)),
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


class _Named:
    """A workload whose requests are in two namespaces."""

    def __init__(self, inner: Prompts) -> None:
        self.inner = inner
        self.jobs, self.page_size = inner.jobs, inner.page_size

    def key(self, job: Job, length: int) -> Key:
        key = self.inner.key(job, length)
        return Key(key.raw, key.stride, ("", "tenant")[job.index % 2])
