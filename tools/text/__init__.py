"""Text processing: secrets in text, file names, misleading characters. Every package may import this one."""
