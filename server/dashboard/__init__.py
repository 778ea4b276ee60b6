"""The dashboard, which `coretools-mcp dashboard` opens. It shows one running server, and accepts answers to questions.

Imported only by `run_server` and the console, when a person opens it.
"""
