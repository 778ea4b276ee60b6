"""The dashboard, which `coretools-mcp dashboard` opens. It shows one running server and accepts answers to questions.

Only `run_server` and the console import this package. The web application is imported when the dashboard is opened.
"""
