"""No engine in particular: decoding and chunks in one pass, and no time of the host.

The step overhead of the hardware profile stands for everything outside the kernels, with a time
model that has it (`pure-roofline`).
"""

from __future__ import annotations

from .base import EngineProfile

PROFILE = EngineProfile(name="plain", sources="this project")
VERSIONS = (PROFILE,)
