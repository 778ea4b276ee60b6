"""Changing files: matching, writing whole, telling the difference."""
