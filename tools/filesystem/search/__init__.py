"""Searching the content of files: the pattern, the engines, and the matches as text."""
