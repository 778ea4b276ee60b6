"""Planning with the person behind the client: todo lists, and other agents that take a task. Tools import it."""
