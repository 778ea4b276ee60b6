"""The SDK's everything-server, over HTTP or stdio (its own command knows only HTTP).

python everything_server.py FOLDER http|stdio
"""

from __future__ import annotations

import importlib
import sys
import warnings


def main() -> None:
    """Serve over HTTP, on a free port that is printed on standard error, or over stdio."""
    warnings.simplefilter("ignore")  # the server also demonstrates features that the SDK has deprecated
    folder, transport = sys.argv[1:]
    sys.path.insert(0, folder)
    server = importlib.import_module("mcp_everything_server.server")
    if transport == "http":
        server.main(["--port", "0", "--log-level", "WARNING"])
    else:
        server.mcp.run(transport="stdio")


if __name__ == "__main__":
    main()
