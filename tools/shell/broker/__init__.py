"""The broker, a separate process. It runs as a script, so the modules in this folder use only the standard library."""
