"""Custom tools: one command of the operator declares them, and another one runs them.

Tools and the server import this package. It runs programs through `tools.shell`.
"""
