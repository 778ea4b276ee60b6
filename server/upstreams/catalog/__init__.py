"""What upstreams offer, under the names that clients see, and what a person has approved of it.

The connections and the relay import it; it opens no session.
"""
