"""The broker, which is a separate process. It runs as a script, so these modules use only the standard library."""
