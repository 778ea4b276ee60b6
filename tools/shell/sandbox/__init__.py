"""The sandbox for commands on Linux: bubblewrap, shown to work before it is relied on. `bubblewrap` is the entrance."""
