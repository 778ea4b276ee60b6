"""Finding files by their names."""
