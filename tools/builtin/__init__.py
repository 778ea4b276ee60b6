"""The built-in tools, a module for each: its parameters, its description, and what it hands to the rooms below."""
