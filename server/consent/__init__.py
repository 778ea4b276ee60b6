"""How the person behind a client is asked, and how an answer is read."""
