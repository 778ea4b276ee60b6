"""Custom tools: one of the operator's commands declares them, and another one runs them."""
