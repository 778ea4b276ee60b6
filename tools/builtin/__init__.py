"""The built-in tools, a module for each: its parameters, its description, and what it hands to the rooms below.

No tool imports another; `all_tools` knows them all, and the server knows `all_tools`.
"""
