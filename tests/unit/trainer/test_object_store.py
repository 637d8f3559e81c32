"""Names of places in object stores, and what errors of the library mean."""

import subprocess
import sys
from pathlib import Path

import pytest

from dtj_trainer.config.parsing import parse
from dtj_trainer.config.store_url import Location, place
from dtj_trainer.errors import UsageError
from dtj_trainer.object_store.bucket import StoreFailed, error_of
from dtj_trainer.object_store.s3 import failure_of
from dtj_trainer.process.output_directories import check_outputs
from support.bad_arguments import refusal

SOURCE = Path(__file__).resolve().parents[3] / "trainer-image"


def test_a_url_names_a_bucket_and_a_folder() -> None:
    assert Location.of("s3://bucket/a//b/") == Location("s3", "bucket", "a/b")
    assert str(Location.of("gs://bucket")) == "gs://bucket"
    assert Location.of("gs://bucket").below("x") == "x"
    assert place("/data") == Path("/data")


@pytest.mark.parametrize(
    "argument", ["--checkpoint-dir=s4://b/x", "--log-dir=s3:///x", "--export-dir=hdfs://b/x", "--store-cache=s3://b/x"]
)
def test_a_url_that_cannot_be_used_is_refused_by_its_option(argument: str) -> None:
    assert refusal(argument).startswith(": ")


@pytest.mark.parametrize("option", ["--checkpoint-dir", "--store-cache"])
@pytest.mark.parametrize("url", ["s3://KEY:hidden@b/x", "s3://KEY:hid/den@b", "s4://hidden@b"])
def test_credentials_in_a_url_are_refused_and_not_shown(option: str, url: str) -> None:
    scheme, _, end = url.partition("://")
    assert refusal(f"{option}={url}").startswith(f"{option}={scheme}://...@{end.rpartition('@')[2]}: ")


def test_each_task_has_a_local_copy_of_its_own(tmp_path: Path) -> None:
    one, other = (parse([f"--checkpoint-dir=s3://b/{name}", f"--store-cache={tmp_path}"], {}) for name in "xy")
    assert one.checkpoint.location == Location("s3", "b", "x")
    assert one.checkpoint.directory is not None
    assert one.checkpoint.directory.parent == tmp_path
    assert one.checkpoint.directory != other.checkpoint.directory


def test_how_long_a_request_is_repeated_can_be_said_in_a_manifest() -> None:
    """By an argument: the API server refuses variables of ours there."""
    assert parse(["--store-retry-seconds=300"], {"DTJ_STORE_RETRY_SECONDS": "5"}).store.retry_seconds == 300
    assert parse([], {"DTJ_STORE_RETRY_SECONDS": "5"}).store.retry_seconds == 5
    assert parse([], {}).store.retry_seconds == 60
    assert refusal("--store-retry-seconds=0").endswith(": give a number above 0")


def _answered(status: str, code: str, message: str) -> str:
    """The library's text for an answer of the store, which may have a line before its error."""
    document = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return f"Generic S3 error: PUT http://127.0.0.1:9/b/x - Server returned non-2xx status code: {status}: {document}"


@pytest.mark.parametrize(
    ("text", "kind", "ends", "message"),
    [
        ("404: <Code>NoSuchBucket</Code>", "NotFoundError", UsageError, "there is no bucket b; create it"),
        ("403 Forbidden", "PermissionDeniedError", UsageError, "access denied (403 Forbidden)"),
        ("Missing AccessKeyId", "GenericError", UsageError, "there are no credentials for s3://"),
        ("PUT http://169.254.169.254/latest/api/token", "GenericError", UsageError, "there are no credentials"),
        ('builder error\n"No CA certificates were loaded"', "GenericError", UsageError, "install the package ca-cert"),
        ("503 Slow Down", "GenericError", StoreFailed, "503 Slow Down"),
        (
            _answered("400 Bad Request", "ExpiredToken", "It has expired."),
            "GenericError",
            UsageError,
            "does not take these credentials any more (400 ExpiredToken: It has expired.)",
        ),
        (
            _answered("403 Forbidden", "RequestTimeTooSkewed", "See the\nclock."),
            "PermissionDeniedError",
            UsageError,
            "access denied (403 RequestTimeTooSkewed: See the clock.)",
        ),
        (
            _answered("400 Bad Request", "AuthorizationHeaderMalformed", "The region is wrong; expecting 'eu-west-1'"),
            "GenericError",
            UsageError,
            "another region or at another endpoint (400 AuthorizationHeaderMalformed: The region is wrong; expecting "
            "'eu-west-1'); set AWS_REGION",
        ),
        (
            "Received redirect without LOCATION, this normally",
            "GenericError",
            UsageError,
            "another region or at another endpoint (a redirect); set AWS_REGION",
        ),
        (
            "PUT after 3 retries, max_retries: 99, retry_timeout: 6s  - x",
            "E",
            StoreFailed,
            "(PUT after 3 retries  - x)",
        ),
    ],
)
def test_an_error_of_the_store_is_one_line(text: str, kind: str, ends: type[Exception], message: str) -> None:
    error = error_of("--log-dir=s3://b/x", Location.of("s3://b/x"), failure_of(f"{text}\nDebug source: ...", kind))
    assert type(error) is ends
    assert message in str(error)
    assert "\n" not in str(error)
    lasting = ("access denied", "install the package ca-cert", "another region")
    assert error.restart_may_help == (not message.startswith(lasting))


@pytest.mark.parametrize(("scheme", "package"), [("s3", "obstore"), ("gs", "google-cloud-storage")])
@pytest.mark.parametrize("option", ["--checkpoint-dir", "--log-dir", "--export-dir"])
def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch, option: str, scheme: str, package: str) -> None:
    for module in ("obstore", "google.cloud.storage"):
        monkeypatch.setitem(sys.modules, module, None)
    config = parse([f"{option}={scheme}://b/x"], {})
    wanted = (
        rf"^{option}={scheme}://b/x: the package {package} is not installed; run pip install "
        r"'dtj-trainer\[stores\]', or in a checkout pip install './trainer-image\[stores\]'$"
    )
    with pytest.raises(UsageError, match=wanted):
        check_outputs(config)


def test_no_library_is_imported_without_a_url() -> None:
    code = "import sys, dtj_trainer.__main__; sys.exit(bool({'obstore', 'google.cloud'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=SOURCE, check=False).returncode == 0
