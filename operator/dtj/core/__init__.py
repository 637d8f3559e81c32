"""Decisions, pure: what to do about a job, given what is observed of it and what time it is."""
