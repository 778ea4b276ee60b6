"""The page that a person opens with `coretools-mcp dashboard`: it shows one running server, and takes answers.

Only `run_server` and the console import it, once somebody looks.
"""
