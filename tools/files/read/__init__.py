"""Reading files of every kind."""
