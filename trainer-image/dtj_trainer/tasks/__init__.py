"""The models that ship. They are trained, evaluated and exported as a user's own are."""
