"""Trusts several folders, one after the other. Tests run several such processes at once.

python trusting.py STORE NAME COUNT
"""

from __future__ import annotations

import sys

from server.settings.workspace_trust import trust_folder

if __name__ == "__main__":
    store, name, count = sys.argv[1:]
    for number in range(int(count)):
        trust_folder(store, f"/{name}/{number}", {".coretools/settings.json": name})
