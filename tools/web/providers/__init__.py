"""Who searches the web for us: each provider asks by its documented interface and reads what comes back."""
