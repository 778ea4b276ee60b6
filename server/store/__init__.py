"""The state that replicas of one server share, and the stores that can hold it.

Every package above `settings` may import this one; it imports only `settings`.
"""
