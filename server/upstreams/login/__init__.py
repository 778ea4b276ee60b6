"""Logins to HTTP upstreams (OAuth 2.1): tokens are obtained, stored and renewed; a person is asked only if needed."""
