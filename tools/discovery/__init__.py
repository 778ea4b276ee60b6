"""Custom tools: one command of the operator declares them, another one carries them out.

Tools and the server import it; it runs programs through `tools.shell`.
"""
