"""Start the bundle's server in the folders that the person has selected. The client passes them as arguments."""

from __future__ import annotations

import runpy
import sys

sys.argv[1:] = [word for folder in sys.argv[1:] for word in ("--workspace", folder)]
runpy.run_module("coretools_mcp", run_name="__main__", alter_sys=True)
