"""The clients: identity, workspace folders, the request in progress, and notifications."""
