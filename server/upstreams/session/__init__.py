"""One session with an upstream: its revision, lists, questions and results.

The connections and the relay import it; it builds on the wire.
"""
