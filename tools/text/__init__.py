"""Text as such: secrets in it, names of files, characters that mislead. Everything may import it."""
