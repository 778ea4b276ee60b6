"""Code intelligence: runs language servers confined, and shows a client only what it may see of their answers.

Tools import this package. It builds on `tools.shell` and `tools.files`.
"""
