"""Metrics and traces of requests and upstreams. This package is imported only if at least one of the two is on."""
