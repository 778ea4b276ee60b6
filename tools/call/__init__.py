"""What every call goes through: the base class of tools, the registry, consent, the runner. Knows no specific tool."""
