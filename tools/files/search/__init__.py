"""Searching files by their content."""
