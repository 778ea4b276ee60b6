"""Decides whether a call may run: allow, ask or deny, always with a reason.

`tools.call`, `tools.shell` and the server import this package. The package knows tools only by their names and kinds,
and calls only by their subjects.
"""
