"""Reading for a model: one file of any kind, windows of its lines, notebooks."""
