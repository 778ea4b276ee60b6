"""The everything-server of the SDK, whose own command knows only HTTP: `everything_server.py FOLDER http|stdio`."""

from __future__ import annotations

import importlib
import sys
import warnings


def main() -> None:
    """Serve over HTTP, on a free port that is told on standard error, or over stdio."""
    warnings.simplefilter("ignore")  # it shows what the SDK has declared deprecated, too
    folder, transport = sys.argv[1:]
    sys.path.insert(0, folder)
    server = importlib.import_module("mcp_everything_server.server")
    if transport == "http":
        server.main(["--port", "0", "--log-level", "WARNING"])
    else:
        server.mcp.run(transport="stdio")


if __name__ == "__main__":
    main()
