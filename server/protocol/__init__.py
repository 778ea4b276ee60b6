"""The protocol on the server side: revisions, errors and requests.

Everything in `server` may import this package, which imports no other package of `server`.
"""
