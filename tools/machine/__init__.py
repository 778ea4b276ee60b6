"""The resources of this process: worker threads and system limits. Every package may import this one."""
