"""Mistakes that can be planted in the process of vLLM, to see that the judge finds them: names, and
what is wrong. What they do is in `planted`, which needs vLLM.

A name that begins with `vllm-` is a mistake of vLLM itself, with and without the connector.
"""

from __future__ import annotations

PLANTS = {
    "page-of-another": "a load takes one of its host pages from another place",
    "layer-is-not-loaded": "the last layer of each group is not copied",
    "load-is-a-block-late": "a load writes each page where the one after it belongs",
    "digests-are-not-checked": "what a store returns is taken as it is",
    "blocks-are-not-given-back": "a block that was loaded is held for ever",
    "vllm-hash-is-short": "vLLM's hash of a block leaves out its first two tokens",
}
