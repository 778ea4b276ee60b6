"""The broker, a process beside the server: it runs by its path, so these modules need the standard library alone."""
