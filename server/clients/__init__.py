"""The clients: identity, workspace folders, the request in progress, and notifications.

The request handlers, the transports and the upstreams import this package. It depends on the protocol and `questions`,
but not on upstreams.
"""
