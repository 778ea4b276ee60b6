"""Todo lists, and other agents that take on tasks. Tools import this package."""
