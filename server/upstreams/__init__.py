"""The servers behind this one: how they are reached, their published names, and their tools under these."""
