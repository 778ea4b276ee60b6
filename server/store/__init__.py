"""The state that replicas of one server share, and the stores that can hold it.

Everything above the settings may import it; it imports only the settings.
"""
