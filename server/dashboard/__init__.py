"""The dashboard, which `coretools-mcp dashboard` opens: it shows one running server, and takes answers.

Only `run_server` and the console import it, once a person opens it.
"""
