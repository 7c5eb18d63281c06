"""A faster build of the same source: `modules` says which modules it compiles, `building` makes it
with mypyc (`make compiled`), and `finder` uses it. The source stays the reference."""
