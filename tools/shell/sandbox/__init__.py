"""The sandbox for commands on Linux: bubblewrap, tested before it is used. `bubblewrap` is the main module."""
