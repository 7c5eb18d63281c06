"""The tenant of each request: a number each, and the names once.

Lives here: the column that a format fills while it reads. Does not know what a tenant may use.
"""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray


class Tenants:
    """See the module. Four bytes a request."""

    def __init__(self) -> None:
        self._of = array("i")
        self._places: dict[str, int] = {}

    def add(self, name: str = "") -> None:
        """Appends the tenant of the next request. name: empty if the file names none."""
        self._of.append(self._places.setdefault(name, len(self._places)))

    @property
    def numbers(self) -> NDArray[np.int32]:
        return np.asarray(self._of)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._places)
