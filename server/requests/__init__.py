"""What clients ask for: tools, prompts, resources, completion, and what such a request acts in.

`app`, administration, the dashboard, the console and telemetry import it; it stands on consent, clients, upstreams.
"""
