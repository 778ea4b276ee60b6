"""What clients ask for: tools, prompts, resources, completion."""
