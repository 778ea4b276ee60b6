"""The file tools, and the few modules through which all of them reach the disk."""
