"""Weights with which a state remembers: what the families with states share."""

from __future__ import annotations

from transformers import PreTrainedModel


def lengthen_memory(model: PreTrainedModel) -> None:
    """Let states decay over about a hundred tokens, and take in much of each token.

    With the library's initial values a head either forgets within a few tokens or takes in a
    thousandth of each, and a wrong state would hardly change a logit.
    """
    for module in model.modules():
        if hasattr(module, "A_log"):
            module.A_log.uniform_(-5.0, -2.0)
            module.dt_bias.uniform_(-1.0, 0.5)
