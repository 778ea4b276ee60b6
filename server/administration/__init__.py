"""Operating a running server: logs, changed settings, and queries from terminal commands and the dashboard."""
