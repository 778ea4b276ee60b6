"""Asks the person behind a client, and parses the answer. This package imports no tool."""
