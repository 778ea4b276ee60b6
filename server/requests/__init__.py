"""The handlers of client requests (tools, prompts, resources, completion), and the context that they run in.

`app`, `administration`, `dashboard`, `console` and `telemetry` import this package; it builds on `questions`, `clients`
and `upstreams`.
"""
