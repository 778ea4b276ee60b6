"""Our command as it is without the extra `dashboard`: the packages of the extra cannot be imported."""

from __future__ import annotations

import sys

from server.cli import main

for name in list(sys.modules):  # a forked process may have imported the modules already
    if name.split(".")[0] == "jinja2" or name.startswith("server.dashboard"):
        del sys.modules[name]
sys.modules["jinja2"] = None  # type: ignore[assignment]
sys.exit(main())
