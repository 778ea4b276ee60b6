"""The built-in tools. Each has a module with its parameters, its description and its calls to the packages below.

Tools do not import each other. `all_tools` lists them, and the server uses only `all_tools`.
"""
