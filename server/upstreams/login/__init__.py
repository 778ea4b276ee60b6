"""Logins to upstreams over HTTP (OAuth 2.1): tokens are obtained, stored and renewed; a person is asked only if needed.

`connections`, `relay` and `console` import this package, which depends on no tool.
"""
