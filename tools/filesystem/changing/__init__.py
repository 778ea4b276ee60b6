"""Changing one file: what `write_file` and `edit` share, and how an edit finds and replaces."""
