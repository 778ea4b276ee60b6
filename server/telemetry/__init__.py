"""Counters and traces, for operators who turn them on.

If both are off, nothing here is imported. This package observes requests and upstreams, which do not depend on it.
"""
