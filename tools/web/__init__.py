"""Access to the web: the URL opener with its address guard, web pages, and web searches.

Tools import this package. Nothing else opens a URL for a model.
"""
