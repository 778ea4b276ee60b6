"""Logins to upstreams over HTTP (OAuth 2.1): tokens are obtained, stored and renewed; a person is asked only if needed.

The connections, the relay and the console import it; it depends on no tool.
"""
