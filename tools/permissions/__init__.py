"""May this call run: allow, ask or deny, always with the reason.

`tools.call`, `tools.shell` and the server import it; it judges names, kinds and subjects, and knows no tool.
"""
