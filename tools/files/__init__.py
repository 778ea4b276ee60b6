"""Files of the workspace: only this package opens, reads, changes, finds and searches them."""
