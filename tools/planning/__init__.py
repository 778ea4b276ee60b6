"""Todo lists, and other agents that perform tasks. Tools import this package."""
