"""What a client gets of upstreams: its requests brought there, and results, questions, tasks and changes brought back.

The proxy, the requests and `app` import it; it stands on all other rooms of the upstreams.
"""
