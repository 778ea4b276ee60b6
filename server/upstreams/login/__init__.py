"""Logins to upstreams over HTTP (OAuth 2.1): how a token is got, kept, and renewed before a person is asked again."""
