"""The state that replicas of one server share, and the stores for it. Of `server`, it imports only `settings`."""
