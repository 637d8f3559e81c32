"""The local runner: the same planner and controller over a Gateway whose pods are processes of this machine."""
