"""What upstreams offer, under the names that clients see."""
