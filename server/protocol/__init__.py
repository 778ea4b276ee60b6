"""The protocol: messages, revisions, requests, list items and file URIs. It imports no other package of `server`."""
