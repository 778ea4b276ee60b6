"""The page that a person opens with `coretools-mcp dashboard`: it shows one running server, and takes answers."""
