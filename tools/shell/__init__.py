"""Runs programs for tools, custom tools, language servers and upstreams, and manages the processes left running."""
