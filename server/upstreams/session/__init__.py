"""One session with an upstream: its revision, its lists, its questions, its results.

The connections and the relay import it; it stands on the wire.
"""
