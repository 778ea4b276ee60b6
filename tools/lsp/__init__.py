"""Code intelligence: runs confined language servers, and removes from their answers what a client may not see.

Tools import this package. It builds on `tools.shell` and `tools.files`.
"""
