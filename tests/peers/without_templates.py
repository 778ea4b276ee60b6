"""Our command where the extra `dashboard` is not installed: what stands behind it cannot be imported."""

from __future__ import annotations

import sys

from server.cli import main

for name in list(sys.modules):  # a forked process has imported it already
    if name.split(".")[0] == "jinja2" or name.startswith("server.dashboard"):
        del sys.modules[name]
sys.modules["jinja2"] = None  # type: ignore[assignment]
sys.exit(main())
