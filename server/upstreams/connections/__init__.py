"""The connections to upstreams: one task owns each, and a pool finds them by the name of a tool.

The relay imports it; it builds on the sessions, the catalog and the wire.
"""
