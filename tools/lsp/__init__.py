"""Code intelligence: language servers, which run confined, and what they say as a client may see it.

Tools import it; it stands on `tools.shell` and `tools.files`.
"""
