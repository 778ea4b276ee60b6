"""Finding files: the walk, what it leaves out, and what it looks for."""
