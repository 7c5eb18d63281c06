"""`python -m hicache` runs the `hicache` command."""

from traces.start import main

raise SystemExit(main())
