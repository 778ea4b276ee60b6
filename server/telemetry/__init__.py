"""What is counted and traced, where somebody wants it.

Nothing of it is imported otherwise; it looks at requests and upstreams, and neither knows of it.
"""
