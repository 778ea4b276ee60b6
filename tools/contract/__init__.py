"""What a tool is: parameters in, confirmation details, a context to run in, a result out. No input or output here."""
