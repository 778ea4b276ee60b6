"""The state that replicas of one server share, and the stores that can hold it. Imports only `settings` of `server`."""
