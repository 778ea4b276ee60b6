"""What a tool is: parameters in, confirmation details, a context to run in, a result out.

Everything in `tools` speaks in it; it does no input or output.
"""
