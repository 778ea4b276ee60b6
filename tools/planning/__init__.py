"""Planning with the person behind the client."""
