"""Asks the person behind a client, and parses the answer. It depends on no tool."""
