"""The requests of clients (tools, prompts, resources, completion), and the context that they run in.

`app`, administration, the dashboard, the console and telemetry import it; it builds on consent, clients and upstreams.
"""
