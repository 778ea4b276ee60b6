"""Facts that are remembered between conversations. Tools import this package. It builds on `tools.files`."""
