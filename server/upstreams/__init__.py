"""The servers behind this one, which `proxy` stands in front of.

What they offer (`catalog`), one session with one (`session`, `wire`, `login`), their life (`connections`), and what a
client gets of them (`relay`). Requests, the console and telemetry import it.
"""
