"""What the replicas of one server share, and the places where it can be stored.

Everything above the settings may import it; it imports only the settings.
"""
