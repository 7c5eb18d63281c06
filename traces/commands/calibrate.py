"""`hicache calibrate`: measures the copies and kernels of a device, and writes a profile.

Contains the command and the conversion of measurements to a profile. Does not measure (see
devices/copy_bench), create or describe devices (see devices/probes), or define the file format (see
sim/hardware/measured).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TextIO

from hicache import models, registry
from hicache.devices.base import Direction
from hicache.memory.pieces import CopyShape, copy_shapes
from hicache.models import ModelDescription
from sim.hardware import measured

from ..devices.copy_bench import Bench
from ..devices.probes import base as probes
from ..devices.probes.base import (
    MEMORY_LIMIT,
    PROBES,
    TINY,
    Geometry,
    check_geometry,
    measurable,
)
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_whole
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe
from ..terminal.text import name
from ._options import of_numa_node

SUMMARY = "measure the copies and kernels of a device, and write a hardware profile"
GROUP = "devices"
_PAGES, _FEWEST_PAGES = 512, 4


@dataclass(frozen=True)
class Options(OptionRecord):
    """date: today if None."""

    device: str = option(
        lambda: ", ".join(registry.names(PROBES)), read.entry(PROBES), default="cpu"
    )
    output: str = option(
        "write the profile to this file; - is stdout", *read.OUTPUT, short="-o", default="-"
    )
    model: str = option(
        f"the model whose pages are copied (default: {TINY}, 4 layers of 2 KV heads, which fits "
        "any machine; measure the model that will be served)",
        read.choice(measurable()),
        default=TINY,
    )
    page_size: int = option("tokens per page", *read.TOKENS, default=64)
    pages: int | None = option(
        f"number of pages in the largest copy (default: {_PAGES}, or as many as fit in "
        f"{MEMORY_LIMIT >> 30} GiB on both tiers)",
        read.at_least(_FEWEST_PAGES),
        "N",
    )
    layout: str = option("layout of the host tier", read.name, default="page_first_direct")
    io_backend: str = option("how to copy pages", read.name, default="direct")
    numa_node: int | None = of_numa_node("wherever the system puts it")
    repeats: int = option("number of copies of each size", read.at_least(3), "N", default=41)
    date: str | None = option("date of the measurement (default: today)", read.name)


def run(options: Options, command: str) -> int:
    """Returns the exit code. Everything in the profile was measured in this call."""
    check_outputs({}, output=options.output)
    out = sys.stderr if options.output == "-" else sys.stdout
    document = measured.seal(_measure(options, models.get(options.model), command, out))
    with ignore_broken_pipe():
        _print(document["measured"], document["geometry"], out)
    write_whole(options.output, [json.dumps(document, indent=1, sort_keys=True) + "\n"])
    if options.output != "-":
        path = name(options.output)
        print(f"profile {document['hash'][:12]} written to {path}", file=out)
        print(
            f"Try hicache twin TRACE --profile {path}: how well it predicts this device.", file=out
        )
    return 0


def _measure(
    options: Options, model: ModelDescription, command: str, out: TextIO
) -> dict[str, Any]:
    """The copies and kernels of the device, as a profile that is not sealed."""
    date = options.date or datetime.now(UTC).date().isoformat()
    probe = probes.load(options.device)
    machine = probe.machine()
    pages = dict.fromkeys(model.components, options.pages or _pages(model, options.page_size))
    geometry = Geometry(
        model,
        options.page_size,
        pages,
        pages,
        options.layout,
        options.io_backend,
        options.numa_node,
    )
    check_geometry(geometry)
    with probe.make(geometry, time.perf_counter_ns) as device:
        with ignore_broken_pipe():
            print(f"{options.device}: {machine['accelerator']}", file=out)
        bench = Bench(device, geometry, options.repeats)
        figures = bench.measure()
        figures["plain"] = bench.against_plain(partial(probe.plain_ns, device))
    figures["rates"] = probe.rates()
    return {
        "name": options.device,
        "made": {"date": date, "device": options.device, "command": command},
        "machine": machine,
        "geometry": describe(geometry),
        "hardware": _hardware(figures),
        "curves": {way: figures[way]["points"] for way in ("d2h", "h2d")},
        "measured": figures,
    }


def _pages(model: ModelDescription, page_size: int) -> int:
    """Pages of each component if none were asked for."""
    each = sum(model.bytes_per_page(name, page_size) for name in model.components)
    return max(_FEWEST_PAGES, min(_PAGES, MEMORY_LIMIT // (2 * each)))


def describe(geometry: Geometry) -> dict[str, Any]:
    """The model, pages and layout that were copied, for comparison with another run.

    The first component is what is measured (see copy_bench)."""
    component = geometry.model.components[0]
    copied = copy_shapes(geometry.model, component, geometry.page_size, geometry.layout)
    return {
        "model": geometry.model.name,
        "page_size": geometry.page_size,
        "page_bytes": sum(
            geometry.model.bytes_per_page(component, geometry.page_size)
            for component in geometry.model.components
        ),
        "layers": geometry.model.layers,
        "layout": geometry.layout,
        "io_backend": geometry.io_backend,
        "numa_node": geometry.numa_node,
        "component": component,
        "shapes": [shape._asdict() for shape in copied],
    }


def _hardware(figures: dict[str, Any]) -> dict[str, int]:
    """The hardware fields of a profile. All rates were measured, so the reachable share is 1000."""
    rates, ways = figures["rates"], [figures[way.value] for way in Direction]
    fastest = min(ns for way in ways for _, ns in way["points"])
    return {
        "flops_per_s": rates["flops_per_s"],
        "hbm_bytes_per_s": rates["memory_bytes_per_s"],
        "hbm_bytes": rates["memory_bytes"],
        "link_bytes_per_s": sum(way["fit"]["bytes_per_s"] for way in ways) // len(ways),
        "link_shared_permille": max(1, figures["both"]["shared_permille"]),
        # the latency cannot exceed the time of the fastest copy
        "copy_latency_ns": min(fastest // 2, *(way["fit"]["overhead_ns"] for way in ways)),
        "compute_permille": 1000,
        "hbm_permille": 1000,
        "link_permille": 1000,
        "step_overhead_ns": rates.get("launch_ns", 0),
    }


def _print(figures: dict[str, Any], geometry: dict[str, Any], out: TextIO) -> None:
    copied = ", ".join(str(CopyShape(**shape)) for shape in geometry["shapes"])
    print(f"copied: {geometry['model']}, {copied}; {geometry['layout']}", file=out)
    for way in Direction:
        one = figures[way.value]
        fit = one["fit"]
        print(
            f"{way.value}: {one['largest_bytes_per_s'] / 1e9:.2f} GB/s at "
            f"{one['points'][-1][0]:,} bytes; least squares {fit['overhead_ns'] / 1e3:.1f} us + "
            f"bytes / {fit['bytes_per_s'] / 1e9:.2f} GB/s, off by up to "
            f"{fit['worst_error_permille'] / 10:.1f}%",
            file=out,
        )
        for (count, ns), high in zip(one["points"], one["p90_ns"], strict=True):
            print(f"  {count:>12,} bytes  {ns / 1e3:>10.1f} us  (p90 {high / 1e3:.1f})", file=out)
    for way, one in figures["plain"].items():
        speeds = [one["bytes"] / one[key] for key in ("copy_ns", "plain_ns")]
        print(
            f"{way}: {one['share_permille'] / 10:.0f}% of the speed of one plain copy while the "
            f"host polls ({one['bytes']:,} bytes in random pages, {speeds[0]:.2f} against "
            f"{speeds[1]:.2f} GB/s)",
            file=out,
        )
    batch, rates = figures["batch"], figures["rates"]
    print(
        f"both directions at once: {figures['both']['shared_permille'] / 1000:.2f}x of one; "
        f"{batch['overhead_ns_per_copy'] / 1e3:.1f} us for each further copy of a batch",
        file=out,
    )
    print(
        f"matrix products {rates['flops_per_s'] / 1e9:,.1f} Gflop/s, memory "
        f"{rates['memory_bytes_per_s'] / 1e9:,.1f} GB/s read and written",
        file=out,
    )
