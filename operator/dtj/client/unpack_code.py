"""Unpacks the code of a job after it has checked the SHA-256 of the tar. What is wrong is one line.

It runs in a pod, by ``python3 -c``, in the image of the job: Python 3.8 and the standard library only.
"""

import gzip
import hashlib
import sys
import tarfile
import zlib

archive, directory, digest, remedy = sys.argv[1:]
found = hashlib.sha256()
try:
    with gzip.open(archive) as content:
        for chunk in iter(lambda: content.read(2**20), b""):
            found.update(chunk)
except FileNotFoundError:
    sys.exit(f"the code sha256:{digest} is not there: {remedy}")
except (OSError, EOFError, zlib.error) as error:
    sys.exit(f"the code sha256:{digest} cannot be read ({error}): {remedy}")
if found.hexdigest() != digest:
    sys.exit(f"the code sha256:{digest} is damaged, its digest is sha256:{found.hexdigest()}: {remedy}")
try:
    with tarfile.open(archive) as files:
        if hasattr(tarfile, "data_filter"):
            files.extraction_filter = staticmethod(tarfile.data_filter)
        files.extractall(directory)
except OSError as error:
    sys.exit(f"the code cannot be unpacked into {directory}: {error}")
