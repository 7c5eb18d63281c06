"""One engine per file, found by name.

A file begins with literal constants, which are read without importing it:

    DISTRIBUTION    its name on the package index; "" if nothing is installed for it
    RELEASES        the releases that it knows, oldest first
    NEEDS           what must be installed beside it, with exact versions
    STUBS, BARE     modules that are replaced, packages whose __init__ is not run; see `stubs`
    PACKAGE         the package that is imported, where it is not named as the distribution

Then follow the imports of the engine, and `TARGET`, a class derived from `target.Target`. Parts of
it are in files that begin with `_`; `DOUBLES` names those that scripts copy definitions from. They
import nothing of ours but `target` and `laws`, which scripts copy from, too.
"""
