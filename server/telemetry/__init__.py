"""Counters and traces of requests and upstreams, which do not depend on it. Imported only if one of them is on."""
