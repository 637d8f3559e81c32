"""`python -m dtj_trainer.export TFLite MODEL/1`: adds a format to a SavedModel that is there already.

The trainer runs it for each format next to SavedModel; a person may, where the trainer's image lacks a converter.
"""

from dtj_trainer.export.conversion import run

run()
