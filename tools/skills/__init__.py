"""Skills: folders of instructions that a model loads when it needs them. Tools and the server import it."""
