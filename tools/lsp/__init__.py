"""Code intelligence: runs confined language servers and removes from their responses what a client may not see."""
