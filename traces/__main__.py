"""`python -m traces` runs the `hicache` command."""

from traces.start import main

raise SystemExit(main())
