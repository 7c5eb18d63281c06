"""What only a GPU can tell, one check per file: the name of an entry is the check's name."""
