"""Files of the workspace: the way to them, reading, changing, finding, searching."""
