"""The clients: identity, workspace folders, the request in progress, and notifications.

The request handlers import it. It depends on the protocol and on consent, but on no upstream.
"""
