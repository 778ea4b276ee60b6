"""Logins to upstreams over HTTP (OAuth 2.1): how a token is obtained, kept, and renewed before a person is asked again.

The connections, the relay and the console import it; it knows no tool.
"""
