"""Counters and traces, for operators who turn them on.

Otherwise nothing here is imported. It observes requests and upstreams; neither depends on it.
"""
