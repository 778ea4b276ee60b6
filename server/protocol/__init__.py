"""The protocol on the server side: revisions, errors and requests. It imports no other package of `server`."""
