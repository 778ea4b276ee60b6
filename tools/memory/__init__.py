"""Facts that are remembered from one conversation to the next."""
