"""A maintainers' script: fits the constants of the roofline and of the engine profiles.

    python -m sim.fit DATA -o sim/fitted/fitted.json        needs the extra `fit` (scipy)

`rows` reads published measurements, `server` says what each ran on, `replays` plays them and notes
every pass, and `solving` finds the factors. See docs/fidelity.md.
"""
