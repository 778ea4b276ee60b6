"""The clients: who one is, which folders it works in, the request that is being answered, and what it is told.

Everything that answers requests imports it. It knows the protocol and how a person is asked, and no upstream.
"""
