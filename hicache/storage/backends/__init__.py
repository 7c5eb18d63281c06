"""One backend per file, found by the scheme of an address. `hicache/storage/base` says what each
must define. Files that begin with `_` are parts of a backend."""
