"""The servers behind us: how they are reached, their published names, and their tools as tools of ours."""
