"""Changing files: find text, plan the change, write the whole file, show the difference, undo."""
