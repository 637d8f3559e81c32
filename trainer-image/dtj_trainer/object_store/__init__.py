"""`s3://` URLs in place of directories: a local copy, and what is in the bucket. See docs/object-stores.md."""
