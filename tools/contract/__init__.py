"""The vocabulary of tools: parameters, confirmation details, limits, errors and results.

All of `tools` uses these types. They do no I/O.
"""
