"""Logins to upstreams over HTTP (OAuth 2.1): tokens are obtained, stored and renewed; a person is asked if needed."""
