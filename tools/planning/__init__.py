"""Todo lists, and the agents that perform tasks. Tools import this package."""
