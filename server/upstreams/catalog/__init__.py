"""What upstreams offer, under the names that clients see, and which tools a person has approved.

The connections and the relay import it; it opens no session.
"""
