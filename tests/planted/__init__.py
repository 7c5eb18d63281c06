"""Planted bugs: `bugs` has them, `planting` puts one in the core, `sequences` shows each."""

from . import bugs as bugs
from .planting import BUGS as BUGS
from .planting import planted as planted
