"""The commands about the settings and the machine, for a person at a terminal."""
