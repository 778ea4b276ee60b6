"""The upstream servers, behind the facade in `upstream_router`.

`catalog` has what they offer; `session`, `wire` and `login` implement a single session, `connections` the life cycle,
and `relay` the relaying to clients. `requests`, `console` and `telemetry` import this package.
"""
