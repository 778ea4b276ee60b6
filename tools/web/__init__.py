"""Access to the web: the one URL opener, the guard for its addresses, pages and searches.

Tools import this package. Nothing else opens a URL for a model.
"""
