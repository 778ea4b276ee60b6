"""Access to the web: the URL opener with its address guard, web pages, and web searches."""
