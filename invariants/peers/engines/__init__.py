"""One peer per file, found by name.

A file begins with literal constants, which are read without importing it:

    DISTRIBUTION    its name on the package index; "" if nothing is fetched
    RELEASES        the releases that it knows, oldest first
    NEEDS           what must be installed beside it, with exact versions
    STUBS           modules that a stub stands in for, because they need a GPU or are not used
    BARE            packages whose __init__ is not run
    UNUSED          files of the wheel that a CPU never loads, as patterns
    PACKAGE         the package that is imported, where it is not named as the distribution
    LIKE            another peer of the same engine, whose constants and environment it has

The middle ones may differ by release; see `facts`.

Then follow the imports of the engine, and `PEER`, a class derived from `base.Peer`. Parts of a peer
are in files that begin with `_`; `DOUBLES` names those that scripts copy definitions from. They
import nothing of ours but `base` and `laws`, which scripts copy from, too.
"""
