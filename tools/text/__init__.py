"""Text processing: secrets in texts, file names, misleading characters. Every package may import it."""
