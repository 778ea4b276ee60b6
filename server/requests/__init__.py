"""What clients ask for: tools, prompts, resources, completion, and what such a request acts in.

Only `app`, the console and telemetry import it; it stands on consent, clients and upstreams.
"""
