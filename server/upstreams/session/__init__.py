"""One session with an upstream."""
