"""The vocabulary of tools: parameters, confirmation details, limits, errors and results. Does no I/O."""
