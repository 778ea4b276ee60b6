"""The state that replicas of one server share, and the stores that can hold it; of `server`, it imports `settings`."""
