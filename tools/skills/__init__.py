"""Skills: folders with instructions that a model loads on demand. Tools and the server import this package."""
