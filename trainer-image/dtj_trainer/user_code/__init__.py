"""Scripts and training loops of users: how they run as a task, and what a session gives them."""
