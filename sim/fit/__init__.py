"""A maintainers' script: fits the constants of the roofline and of the engine profiles.

    python -m sim.fit DATA -o sim/fitted/fitted.json        needs the extra `fit` (scipy)

`rows` reads published measurements, `loads` and `server` say what each ran, `passes` replays it and
notes every pass, `samples` are these with the work in them, a `table` predicts all samples under
changed `parameters`, and `solving` finds these. See docs/fidelity.md.
"""
