"""Facts remembered between conversations. Tools import this package. The package builds on `tools.files`."""
