"""Copies the metadata of a file whose group the writer does not belong to, and prints the mode of the copy.

python member_of_none.py FILE     as root, the file gets a foreign group and the writer becomes an ordinary user

That user may not be able to read the interpreter's files, so everything is imported first.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.other_user import NOBODY, become_nobody
from tools.files.change.writer import copy_metadata, temporary_in
from tools.files.workspace import Workspace

FOREIGN_GROUP = 5555

file = Path(sys.argv[1])
workspace = Workspace([str(file.parent)])
location = workspace.locate(file.name)
if os.geteuid() == 0:
    os.chown(file.parent, NOBODY, NOBODY)
    os.chown(file, NOBODY, FOREIGN_GROUP)
    become_nobody()
status = file.stat()
# An ordinary user cannot give a file a foreign group, but only the stat matters here.
foreign_status = os.stat_result([*status[:5], FOREIGN_GROUP, *status[6:]])
assert fcntl
with workspace.folder_to_write_in(location) as folder, temporary_in(folder, 0o600) as temporary:
    copy_metadata(temporary, folder, file.name, foreign_status)
    assert temporary.descriptor is not None
    print(f"{os.fstat(temporary.descriptor).st_mode & 0o777:o}")  # noqa: T201 - read by the test
    temporary.remove()
