"""The web: the one opener of URLs, the guard on the addresses it connects to, pages and searches.

Tools import it; nothing else opens a URL for a model.
"""
