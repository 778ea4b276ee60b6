"""What is known about programs: what they run, touch and change, and which of their options matter."""
