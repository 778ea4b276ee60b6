"""What every call passes through: the tool's contract, the registry, consent, the runner, the audit.

The tools and the server import it; it stands on the rooms below, and knows no tool.
"""
