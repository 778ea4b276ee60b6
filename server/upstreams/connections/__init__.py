"""The connections to upstreams: one task owns each, and a pool finds them by tool name.

The relay imports it; it builds on the sessions, the catalog and the wire.
"""
