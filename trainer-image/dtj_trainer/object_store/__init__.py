"""URLs of object stores in place of directories: local copies, and what is in the bucket. See docs/object-stores.md."""
