"""The servers behind this server: how they are reached, their published names, and their tools as tools of ours."""
