"""Why a check may forgive what it would otherwise report, or cannot judge it.

Lives here: every reason, in words. A check counts each use of one (`Check.excuse`), and a planted
bug for each shows that it hides no mistake (`excuses` in invariants/planted). Does not decide when
a reason holds; see the checks.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """A reason to forgive one judgement."""

    # evictions
    LATER = "a later victim of one operation"
    UNCERTAIN_POOL = "it is uncertain which pool chose the victim"
    THINNED = "a state above the limit of its path"
    SANK = "garbage or evictable since this operation"
    ON_HOST = "evictable on host since this operation"
    TO_BE_ADMITTED = "on the path of the request that was refused"
    DELETED_PREFIX = "a host copy beside a prefix that was deleted"
    FREED_SLOT = "a slot freed for a state above the limit"
    RETIRING = "pages that are still in use and do not become free"
    OTHER_POOL = "pages of a node that another pool evicted"
    LAST_BOUNDARY = "pages of a node that lost its last boundary"
    BELOW_DELETED = "host pages below what was deleted"
    UNCUT = "a tombstone is not cut"
    LOCKED_LEAF = "a locked leaf"
    STATE_IN_USE = "a state in use"
    STATE_AT_FORK = "a state at a fork"
    # what holds evictions and refusals back
    SEVERAL_COMPONENTS = "a copy for one of several components"
    LOCKED_PATH = "a write-back locks its path"
    ABOVE_WRITE_BACK = "a page above a write-back comes first"
    COLDER_COPY = "a copy under way of a colder page"
    EITHER_PLAN = "the refusal of a plan with a load, or of one without"
    # copies to host and loads
    TOO_MANY = "as many backups under way as are allowed"
    NO_ROOM = "host had no room"
    FAILED = "its copy failed"
    FLUSHED = "a flush came before the copy"
    NOT_CONTIGUOUS = "nothing on host to continue"
    LOCKED_BESIDE = "a locked copy below or beside it"
    EVICTED_FROM_HOST = "evicted from host since"
    LOST_PREFIX = "the prefix that it continues has gone"
    GIVEN_UP = "stored in vain as often as is allowed"
    NOT_REQUIRED = "no live boundary required it meanwhile"
    LOCKED_COPY = "another transfer locks its host copy"
    NO_ROOM_TO_LOAD = "no room for a load"
    # what a pass leaves
    NO_PAGE_LEFT = "no page is left for a longer pass"
    INCOMPLETE_WINDOW = "an incomplete window"
    NO_STATE_SLOT = "no slot for its state"
    NO_NEXT_SLOT = "no slot for the next state"
