"""What this process uses of the machine: worker threads and limits of the system. Everything may import it."""
