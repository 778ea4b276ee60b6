"""May this call run: allow, ask or deny, always with the reason."""
