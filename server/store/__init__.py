"""The state that replicas of one server share, and the stores that can hold it.

Every package of `server` above `settings` may import this one. From `server`, this package imports only `settings`.
"""
