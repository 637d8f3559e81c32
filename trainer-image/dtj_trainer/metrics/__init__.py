"""The numbers of a run: how they are added up, and where they are shown."""
