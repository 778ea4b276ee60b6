"""The upstream servers, behind the facade in `upstream_router`.

`catalog` has their offers; `session`, `wire` and `login` a single session; `connections` their life cycle; `relay` the
relaying to clients. `requests`, `console` and `telemetry` import this package.
"""
