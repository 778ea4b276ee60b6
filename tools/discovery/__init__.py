"""Custom tools: one of the operator's commands declares them, and another one runs them.

The tools and the server import this package. The package runs programs through `tools.shell`.
"""
