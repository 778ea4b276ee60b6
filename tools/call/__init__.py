"""What every call goes through: the base class of tools, the registry, consent, the runner and the audit.

The built-in tools and the server import this package. It builds on the packages below it and knows no particular tool.
"""
