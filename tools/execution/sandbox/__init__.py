"""The sandbox for commands on Linux: bubblewrap, shown to work before it is relied on.

`bubblewrap` is the entrance. It puts together what a command sees (`view`), what of the home is hidden (`hidden`), what
of the workspace stays as it is (`auto_run_files`), what it may ask the kernel for (`seccomp`) and how many processes it
may be (`limits`), has tried all of it before the first command (`probe`), and holds each command back until its mounts
were looked at (`gate`).
"""
