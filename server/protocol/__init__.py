"""The protocol as a server speaks it: its revisions, errors and requests.

Everything in `server` may import it; it knows no transport and no tool.
"""
