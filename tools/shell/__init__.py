"""Running commands and programs, and what they leave running."""
