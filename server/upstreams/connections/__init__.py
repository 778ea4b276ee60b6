"""The connections to upstreams: one task keeps each, a pool finds it by the name of a tool.

The relay imports it; it stands on the sessions, the catalog and the wire.
"""
