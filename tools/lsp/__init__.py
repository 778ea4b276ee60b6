"""Code intelligence: runs confined language servers and removes from their responses what a client may not see.

Tools import this package. The package builds on `tools.shell` and `tools.files`.
"""
