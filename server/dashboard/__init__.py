"""The dashboard, which `coretools-mcp dashboard` opens: shows one running server, and takes answers.

Imported only by `run_server` and the console, when a person opens it.
"""
