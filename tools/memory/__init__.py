"""Facts remembered between conversations. Tools import this package. It builds on `tools.files`."""
