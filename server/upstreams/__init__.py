"""The upstream servers, behind the facade in `resource_and_prompt_router`.

`catalog` contains what they offer. `session`, `wire` and `login` implement a single session. `connections` manages the
sessions, and `relay` relays clients' requests. `administration`, `app`, `console`, `dashboard`, `requests` and
`telemetry` import this package.
"""
