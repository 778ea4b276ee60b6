"""How the person behind a client is asked, and how an answer is read.

Clients, requests and the dashboard import it; it knows the protocol and the store, and no tool.
"""
