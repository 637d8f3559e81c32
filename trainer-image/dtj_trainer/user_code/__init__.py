"""A user's own model and data, which the trainer drives by `--model` and `--data`: see docs/bring-your-own.md."""
