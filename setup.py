"""Says that a wheel is for one platform and one Python if it contains compiled modules.

Everything else about the package stands in `pyproject.toml`. `make wheel` compiles first.
"""

from pathlib import Path

from setuptools import Distribution, setup

BUILT = Path(__file__).with_name("hicache") / "compiled" / "built"


class Package(Distribution):
    def has_ext_modules(self) -> bool:
        return BUILT.exists()


setup(distclass=Package)
