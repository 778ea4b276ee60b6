"""Facts remembered between conversations."""
