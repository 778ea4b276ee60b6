"""The handlers of client requests (tools, prompts, resources, completion), and the context that they run in."""
