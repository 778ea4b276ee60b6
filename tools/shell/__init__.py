"""Runs commands and programs, and manages the processes that they leave running.

Tools, custom tools, language servers and upstreams start programs through this package. The package builds on
`tools.permissions` and `tools.files`.
"""
