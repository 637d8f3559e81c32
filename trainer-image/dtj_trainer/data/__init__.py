"""Where examples come from, and in which order: `dtj_trainer.data.source.Source` is what the loops know of it."""
