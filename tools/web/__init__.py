"""Access to the web: the URL opener, its address guard, pages and searches.

Tools import this package. Nothing else opens a URL for a model.
"""
