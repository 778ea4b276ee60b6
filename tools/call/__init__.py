"""What every tool call goes through: the base class of tools, the registry, consent and the runner.

The built-in tools and the server import this package. It uses the lower-level packages of `tools` and
depends on no specific tool.
"""
