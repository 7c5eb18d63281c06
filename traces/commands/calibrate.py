"""`hicache calibrate`: measures the copies and kernels of a device, and writes a profile.

Converts measurements (devices/bench) to a profile (sim/hardware).
"""

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hicache import models
from hicache.memory.pools import CopyShape, copy_shapes
from sim import hardware as measured

from ..devices.bench import DEVICES, MEMORY_LIMIT, Bench, Geometry, fit, probe_of
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import check_outputs, write_whole
from ..terminal.tables import console, pairs, print_written

_PAGES, _FEWEST_PAGES = 512, 4
_TINY = models.TINY.name


@dataclass(frozen=True)
class Options(OptionRecord):
    device: str = option(", ".join(DEVICES), read.choice(DEVICES), default="cpu")
    output: str = option(
        "write the profile to this file; - is stdout", *read.OUTPUT, short="-o", default="-"
    )
    model: str = option(
        f"the model whose pages are copied (default: {_TINY}, 4 layers of 2 KV heads, which fits "
        "any machine; measure the model that will be served)",
        read.choice([_TINY, *models.names()]),
        default=_TINY,
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
    repeats: int = option("number of copies of each size", read.at_least(3), "N", default=41)


def run(options: Options, command: str) -> int:
    """Returns the exit code. Everything in the profile was measured in this call."""
    check_outputs({}, output=options.output)
    document = measured.seal(_measure(options, command))
    write_whole(options.output, [json.dumps(document, indent=1, sort_keys=True) + "\n"])
    out = sys.stderr if options.output == "-" else sys.stdout
    console(out).print(pairs("Calibration", _rows(document)))
    print_written([options.output], out)
    return 0


def _measure(options: Options, command: str) -> dict[str, Any]:
    """The copies and kernels of the device, as a profile that is not sealed."""
    probe, model, size = probe_of(options.device), models.get(options.model), options.page_size
    machine = probe.machine()
    each = sum(model.bytes_per_page(component, size) for component in model.components)
    fitting = max(_FEWEST_PAGES, min(_PAGES, MEMORY_LIMIT // (2 * each)))
    pages = dict.fromkeys(model.components, options.pages or fitting)
    geometry = Geometry(model, size, pages, pages, options.layout, options.io_backend)
    with geometry.make(probe) as device:
        bench = Bench(device, geometry, options.repeats)
        curves, both = bench.curves(), bench.both_permille()
    rates = probe.rates()
    fits = {way: fit(points) for way, points in curves.items()}
    fastest = min(ns for points in curves.values() for _, ns in points)
    component = model.components[0]  # which is measured
    shapes = copy_shapes(model, component, size, options.layout)
    return {
        "name": options.device,
        "made": {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "device": options.device,
            "command": command,
        },
        "machine": machine,
        "geometry": {
            "model": model.name,
            "page_size": size,
            "page_bytes": each,
            "layers": model.layers,
            "layout": options.layout,
            "io_backend": options.io_backend,
            "component": component,
            "shapes": [shape._asdict() for shape in shapes],
        },
        # all rates were measured, so the reachable share is 1000
        "hardware": {
            "flops_per_s": rates["flops_per_s"],
            "hbm_bytes_per_s": rates["memory_bytes_per_s"],
            "hbm_bytes": rates["memory_bytes"],
            "link_bytes_per_s": sum(fit["bytes_per_s"] for fit in fits.values()) // len(fits),
            "link_shared_permille": max(1, both),
            # the latency cannot exceed the time of the fastest copy
            "copy_latency_ns": min(fastest // 2, *(fit["overhead_ns"] for fit in fits.values())),
            "compute_permille": 1000,
            "hbm_permille": 1000,
            "link_permille": 1000,
            "step_overhead_ns": rates.get("launch_ns", 0),
        },
        "curves": curves,
        "measured": {"repeats": options.repeats, "rates": rates, **fits},
    }


def _rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    geometry, hardware = document["geometry"], document["hardware"]
    shapes = ", ".join(str(CopyShape(**shape)) for shape in geometry["shapes"])
    rows = [
        ("device", f"{document['name']}, {document['machine']['accelerator']}"),
        ("copied", f"{geometry['model']}, {shapes}; {geometry['layout']}"),
    ]
    for way, points in document["curves"].items():
        fitted, speed = document["measured"][way], points[-1][0] / points[-1][1]
        model = f"{fitted['overhead_ns'] / 1e3:.1f} us + bytes / "
        model += f"{fitted['bytes_per_s'] / 1e9:.2f} GB/s"
        rows.append((way, f"{model}; the largest copy {speed:.2f} GB/s"))
    return [
        *rows,
        ("both directions at once", f"{hardware['link_shared_permille'] / 1000:.2f} x of one"),
        ("matrix products", f"{hardware['flops_per_s'] / 1e9:,.1f} Gflop/s"),
        ("memory, read and written", f"{hardware['hbm_bytes_per_s'] / 1e9:,.1f} GB/s"),
    ]
