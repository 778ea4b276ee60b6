"""Requests to other servers: proxies, the causes of failures, and secrets kept out of messages."""
