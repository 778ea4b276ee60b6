"""Facts that are remembered from one conversation to the next. Tools import it; it stands on `tools.files`."""
