"""Running commands: the one runner, what it runs them by, and the tools around it."""
