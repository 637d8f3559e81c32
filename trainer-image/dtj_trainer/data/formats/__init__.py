"""One module for each format of files: CSV, TFRecord, text, images."""
