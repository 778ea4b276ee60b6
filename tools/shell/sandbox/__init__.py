"""The sandbox for commands on Linux: bubblewrap, shown to work before it is relied on.

`bubblewrap` is the entrance: it decides whether there is a sandbox, and has tried it before the first command.
`sandboxed_command` makes one. It puts together what the command sees (`view`), what of the home is hidden
(`hidden_secrets`), what of the workspace stays as it is (`auto_run_guard`) and what the command may ask the kernel for
(`system_call_filter`), and holds it back until its mounts were looked at (`mount_check`).
"""
