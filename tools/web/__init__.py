"""The web: the one opener of URLs, the guard on the addresses it connects to, and the tools that use it."""
