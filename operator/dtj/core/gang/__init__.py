"""Gang schedulers: which one a job uses, the group that its pods are, and what differs between the schedulers."""
