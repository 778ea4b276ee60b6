"""The upstream servers, behind the facade in `upstream_router`.

`catalog` has what they offer; `session`, `wire` and `login` a single session; `connections` their life cycle; `relay`
what clients get from them. Requests, the console and telemetry import this package.
"""
