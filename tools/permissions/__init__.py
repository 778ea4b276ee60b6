"""Decides whether a call may run: allow, ask or deny, always with a reason.

`tools.call`, `tools.shell` and the server import this package. The package judges names, kinds and subjects, not tools.
"""
