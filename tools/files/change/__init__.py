"""Changing files: matching, planning, writing whole, telling the difference, taking back."""
