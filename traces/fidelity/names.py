"""One name for each GPU, engine, model and precision, whatever a source calls it.

"H100 SXM 80GB", "H100 80GB HBM3" and "H100" are one accelerator. The names are those of
sim/hardware and hicache/models where the project has them. Does not look whether it has.
"""

from __future__ import annotations

import re

NONE = "none"
ANY = "any"

# The first pattern that is found in the simplified text decides.
_GPUS = (
    (r"gb300", "gb300"),
    (r"gb200", "gb200"),
    (r"gh200", "gh200"),
    (r"b300", "b300"),
    (r"b200", "b200"),
    (r"h200", "h200"),
    (r"h100.*pcie", "h100_pcie"),
    (r"h100.*nvl", "h100_nvl"),
    (r"h100", "h100"),
    (r"h800", "h800"),
    (r"h20\b.*3e|h20.*141", "h20_3e"),
    (r"h20\b", "h20"),
    (r"a100.*40 ?gb?", "a100_40gb"),
    (r"a100", "a100"),
    (r"a800", "a800"),
    (r"l40s", "l40s"),
    (r"l20[a-z]\b", "l20x"),
    (r"l20\b", "l20"),
    (r"l4\b", "l4"),
    (r"rtx pro 6000", "rtx_pro_6000"),
    (r"rtx 4090|4090", "rtx_4090"),
    (r"rtx 5090|5090", "rtx_5090"),
    (r"mi3[0-9]{2}x?", "mi300"),
)
# The engine that runs the passes; what stands around it (a store, a proxy) is not another engine.
_ENGINES = (
    (r"\bone of\b|\binternal\b|\bno engine\b|\btrace\b", NONE),
    (r"\bvllm\b", "vllm"),
    (r"\bsglang\b", "sglang"),
    (r"\btrt ?llm\b|\btensorrt ?llm\b", "trtllm"),
)
_PRECISIONS = (
    (r"mxfp4", "mxfp4"),
    (r"nvfp4", "nvfp4"),
    (r"fp4", "fp4"),
    (r"fp8|e4m3", "fp8"),
    (r"int4|awq|gptq", "int4"),
    (r"bf16|bfloat16|fp16|float16", "bf16"),
)


def gpu(text: str) -> str:
    """The name of an accelerator, such as h100; "none" where there is no text.

    An accelerator that nobody has named here keeps its own simplified name.
    """
    return _first(_GPUS, text)


def engine(text: str) -> str:
    """vllm, sglang or trtllm; "none" for a replay of a trace or where the engine is not known."""
    return _first(_ENGINES, text)


def model(text: str) -> str:
    """A model without its publisher, in lower case; "any" where there is no text."""
    return _simple(text.rpartition("/")[2]).replace(" ", "-") or ANY


def precision(text: str) -> str:
    """bf16 (which includes fp16), fp8, fp4, nvfp4, mxfp4 or int4; "" where nothing is said."""
    simple = _simple(text)
    return next((name for pattern, name in _PRECISIONS if re.search(pattern, simple)), "")


def version(text: str) -> tuple[int, ...]:
    """The numbers of a version such as 1.1.0rc2.post2, for the nearest one; () without any."""
    found = re.search(r"\d{1,9}(?:\.\d{1,9})+", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _first(table: tuple[tuple[str, str], ...], text: str) -> str:
    simple = _simple(text)
    if not simple:
        return NONE
    found = (name for pattern, name in table if re.search(pattern, simple))
    return next(found, simple.replace(" ", "_"))


def _simple(text: str) -> str:
    return " ".join(re.sub(r"[^\w.+]|_", " ", text.lower()).split())
