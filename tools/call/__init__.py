"""What every call passes through: the tool's contract, the registry, consent, the flow, the audit."""
