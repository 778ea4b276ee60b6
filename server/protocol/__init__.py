"""The protocol as a server speaks it: revisions, errors and requests.

Everything in `server` may import it; it depends on no transport and no tool.
"""
