"""What a client gets of upstreams: its requests brought there, and results, questions, tasks and changes brought back.

Only the proxy and what assembles the server import it; it stands on all other rooms of the upstreams.
"""
