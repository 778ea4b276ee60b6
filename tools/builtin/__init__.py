"""The built-in tools. Each module defines a tool's parameters and description, and calls the packages below.

Tools do not import each other. The server imports only `all_tools`, which lists them.
"""
