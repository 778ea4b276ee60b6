"""The dashboard of one running server, which `coretools-mcp dashboard` opens. It accepts answers to questions."""
