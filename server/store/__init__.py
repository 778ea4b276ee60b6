"""What the replicas of one server share, and the places where that can be kept."""
