"""What reads an option: an option that needs what a run does not have is refused.

Only names; replaying/options says when each is there, and what to do where it is not.
"""

from __future__ import annotations

from enum import Enum, auto


class Need(Enum):
    TRACE = auto()  # a trace that was named
    TIMED = auto()  # a clock
    CHANCE = auto()  # a clock, or sessions that are drawn
    PASSES = auto()  # a clock, or a window pool that is as large as a pass
    SIZED = auto()  # a clock, or a device of the hardware's size
    HOST = auto()  # host memory
    ARRIVALS = auto()  # requests that arrive at their times
    ROUNDS = auto()  # rounds that nothing else delays
    RATE = auto()  # no other rate
    RECORDED = auto()  # no model of arrivals
    STORE = auto()  # storage
    ALONE = auto()  # one replica
    REPLICAS = auto()  # a router
    DECODE = auto()  # replicas that only decode
