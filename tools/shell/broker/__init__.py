"""The broker, a separate process. It runs by its path, so these modules use only the standard library."""
