"""Which files programs read and write and which hosts they reach: one table for each kind of program."""
