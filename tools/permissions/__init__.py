"""Decides whether a call may run. Knows tools only by their names and kinds, and calls only by their subjects."""
