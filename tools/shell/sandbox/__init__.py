"""The sandbox for commands on Linux: bubblewrap, shown to work before it is relied on.

`bubblewrap` is the entrance. It puts together what a command sees (`view`), what of the home is hidden
(`hidden_secrets`), what of the workspace stays as it is (`auto_run_guard`), what it may ask the kernel for
(`system_call_filter`) and how many processes it may be (`resource_limits`), has tried all of it before the first
command (`probe`), and holds each command back until its mounts were looked at (`mount_check`).
"""
