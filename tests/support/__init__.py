"""Helpers of the tests: no test lives here."""
