"""The protocol as a server speaks it: its revisions, errors and requests. It knows no transport and no tool."""
