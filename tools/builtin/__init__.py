"""The built-in tools. Each module defines the parameters and the description of a tool, and calls other packages.

Tools do not import each other. The server imports only `all_tools`, which lists them.
"""
