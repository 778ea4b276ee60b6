"""What the replicas of one server share, and the places where that can be kept.

Everything above the settings may import it; it knows the settings alone.
"""
