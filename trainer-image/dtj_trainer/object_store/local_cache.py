"""The directory for local copies of what is in buckets."""

from dtj_trainer.config.store_url import StorePolicy, default_cache
from dtj_trainer.errors import UsageError
from dtj_trainer.own_directory import make_own


def prepare(store: StorePolicy) -> None:
    """Makes the directory for local copies if no option names one; call it before anything is copied.

    It is in a place that all users of a machine share, under a name that they know: who makes it first could exchange
    checkpoints and data.

    Raises:
        UsageError: it is not this user's alone.
    """
    if store.cache != default_cache():
        return
    try:
        make_own(store.cache)
    except OSError as error:
        raise UsageError(
            f"{store.cache}: cannot be used for local copies of object stores ({error.strerror}); give a directory of "
            "your own with --store-cache, or set TMPDIR"
        ) from None
