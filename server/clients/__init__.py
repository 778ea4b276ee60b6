"""The clients: identity, workspace folders, the request in progress, and notifications.

Everything that answers requests imports it. It depends on the protocol and on how people are asked, but on no upstream.
"""
