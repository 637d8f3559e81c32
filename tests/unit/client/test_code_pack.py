"""Packing a directory of code: what is in the archive, what is refused, and that the digest follows from the files."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dtj.client import CodeError, code_pack
from dtj.client.code_pack import (
    IGNORE_FILE,
    CodePack,
    pack,
)


def folder(root: Path, *files: str, ignore: str | None = None) -> Path:
    """A directory with these files, each of which holds its own path."""
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(file)
    if ignore is not None:
        (root / IGNORE_FILE).write_text(ignore)
    return root


def members(packed: CodePack) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(packed.archive)) as archive:
        return archive.getmembers()


def names(packed: CodePack) -> list[str]:
    """The files and links."""
    return [member.name for member in members(packed) if not member.isdir()]


def refusal(directory: Path) -> str:
    """The one line with which the directory is refused."""
    with pytest.raises(CodeError) as refused:
        pack(directory)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# -- what is packed ---------------------------------------------------------------------------------------------


def test_an_unpacked_archive_is_the_directory(tmp_path: Path) -> None:
    source = folder(tmp_path / "source", "train.py", "package/deep/module.py", "run.sh", "a name with spaces.txt")
    (source / "run.sh").chmod(0o755)
    (source / "empty").mkdir()
    (source / "binary").write_bytes(bytes(range(256)))
    packed = pack(source)
    (tmp_path / "target").mkdir()
    subprocess.run(["tar", "-xz", "-C", tmp_path / "target"], input=packed.archive, check=True)
    done = subprocess.run(["diff", "-r", source, tmp_path / "target"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert os.access(tmp_path / "target" / "run.sh", os.X_OK)
    assert not os.access(tmp_path / "target" / "train.py", os.X_OK)
    assert (tmp_path / "target" / "empty").is_dir()
    assert packed.files == 5
    assert packed.size == sum(file.stat().st_size for file in source.rglob("*") if file.is_file())


def test_caches_repositories_and_runs_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    ignored = ("__pycache__/train.pyc", ".git/config", "dtj-runs/first/log", "sub/.venv/bin/python", "a.pyc")
    source = folder(tmp_path, "train.py", *ignored)
    assert names(pack(source)) == ["train.py"]
    assert pack(source).warning == ""
    folder(source, ignore="!a.pyc\n")
    assert names(pack(source)) == ["a.pyc", "train.py"]


SECRETS = (
    *(".env", ".env.local", "prod.env", ".envrc", "secrets.yaml", ".streamlit/secrets.toml"),
    *("server.key", "keys/a.pem", "a.p12", "id_rsa", "id_ecdsa", "id_ed25519", ".ssh/config"),
    *(".netrc", ".git-credentials", ".pypirc", "pip.conf", ".npmrc", ".docker/config.json", ".config/gh/hosts.yml"),
    *(".aws/credentials", "home/.config/gcloud/credentials.db", "application_default_credentials.json", ".boto"),
    *("service-account.json", "service_account_prod.json", "client_secret_1.json", "credentials.json", "rclone.conf"),
    *(".kube/config", "kubeconfig", "prod.kubeconfig", "terraform.tfstate", "terraform.tfstate.backup", "a.tfvars"),
    *(".huggingface/token", ".cache/huggingface/token", ".kaggle/kaggle.json", ".pgpass", ".bash_history"),
)
CODE = (
    "kubeconfig.py",
    "tokenizer.json",
    "secrets.py",
    "keys.py",
    "id_rsa.pub",
    ".env.example",
    "environment.yml",
    "key/a.py",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_what_usually_holds_secrets_is_left_out_and_named(tmp_path: Path, secret: str) -> None:
    packed = pack(folder(tmp_path, "train.py", secret))
    assert names(packed) == ["train.py"]
    (withheld,) = packed.withheld
    assert secret.startswith(withheld)
    assert packed.warning == (
        f"left out, because such files usually hold secrets: {withheld}; to send one nevertheless, write "
        f'"!{withheld}" into .dtjignore'
    )


@pytest.mark.parametrize("secret", SECRETS)
def test_the_line_that_the_warning_names_sends_it(tmp_path: Path, secret: str) -> None:
    source = folder(tmp_path, "train.py", secret)
    (withheld,) = pack(source).withheld
    packed = pack(folder(source, ignore=f"!{withheld}\n"))
    assert (sorted(names(packed)), packed.warning) == (sorted([secret, "train.py"]), "")


def test_code_with_such_names_is_no_secret(tmp_path: Path) -> None:
    packed = pack(folder(tmp_path, *CODE))
    assert sorted(names(packed)) == sorted(CODE)
    assert packed.warning == ""


def test_what_the_user_excludes_is_not_named(tmp_path: Path) -> None:
    assert pack(folder(tmp_path, "train.py", ".env", ignore="*.env\n")).warning == ""


def test_many_secrets_are_named_in_one_line_and_so_are_names_that_a_terminal_obeys(tmp_path: Path) -> None:
    source = folder(tmp_path, "train.py", *(f"{number:02}.key" for number in range(30)), "-1\n\x1b[2J.key")
    warning = pack(source).warning
    assert warning.isprintable()
    assert "07.key, 08.key and 21 more; to send one" in warning


def test_a_directory_of_secrets_alone_is_refused_with_their_names(tmp_path: Path) -> None:
    words = refusal(folder(tmp_path, "server.key"))
    assert "there is no file to pack" in words
    assert "usually hold secrets: server.key; to send one nevertheless" in words


@pytest.mark.parametrize(
    ("ignore", "kept"),
    [
        ("", ["a.py", "data/b.csv", "data/c.py", "deep/data/d.csv"]),
        ("# a comment\n\n", ["a.py", "data/b.csv", "data/c.py", "deep/data/d.csv"]),
        ("data/", ["a.py"]),
        ("/data/", ["a.py", "deep/data/d.csv"]),
        ("*.csv", ["a.py", "data/c.py"]),
        ("*.csv\r\n", ["a.py", "data/c.py"]),
        ("data/*\n!data/b.csv", ["a.py", "data/b.csv", "deep/data/d.csv"]),
        ("/data\n!data/b.csv", ["a.py", "deep/data/d.csv"]),
        ("**/data/*.csv", ["a.py", "data/c.py"]),
        ("*\n!*/\n!*.py", ["a.py", "data/c.py"]),
        ("*.csv\n!data", ["a.py", "data/c.py"]),
        ("data\n!data/", ["a.py", "data/b.csv", "data/c.py", "deep/data/d.csv"]),
        ("deep/data/ \n", ["a.py", "data/b.csv", "data/c.py"]),
        ("b.csv/\nc.p?", ["a.py", "data/b.csv", "deep/data/d.csv"]),
    ],
)
def test_dtjignore_has_the_syntax_of_gitignore(tmp_path: Path, ignore: str, kept: list[str]) -> None:
    source = folder(tmp_path, "a.py", "data/b.csv", "data/c.py", "deep/data/d.csv", ignore=ignore)
    assert names(pack(source)) == kept
    (source / IGNORE_FILE).rename(source / ".gitignore")
    subprocess.run(["git", "init", "-q", source], check=True)
    git = subprocess.run(
        ["git", "-C", source, "ls-files", "-o", "--exclude-standard"], capture_output=True, text=True, check=True
    )
    assert sorted({*git.stdout.split()} - {".gitignore"}) == kept, "as git decides"


def test_what_is_excluded_is_not_even_opened(tmp_path: Path, unreadable: Callable[[Path], None]) -> None:
    source = folder(tmp_path, "train.py", "private/key", ignore="private/")
    unreadable(source / "private")
    assert names(pack(source)) == ["train.py"]


def test_links_within_the_directory_stay_links(tmp_path: Path) -> None:
    source = folder(tmp_path, "package/module.py")
    (source / "current").symlink_to("package")
    (source / "package" / "other.py").symlink_to("../package/module.py")
    links = {member.name: member.linkname for member in members(pack(source)) if member.issym()}
    assert links == {"current": "package", "package/other.py": "../package/module.py"}
    (source / "through.py").symlink_to("current/other.py")
    assert "through.py" in names(pack(source))
    folder(source, ignore="package/module.py\n")
    assert "other.py: is a link to ../package/module.py, which is not packed" in refusal(source)


def test_a_file_that_exists_nowhere_is_packed_with_or_without_a_directory(tmp_path: Path) -> None:
    assert names(pack(None, extra={"train.py": "pass"})) == ["train.py"]
    source = folder(tmp_path, "helpers.py")
    packed = pack(source, extra={"train.py": "pass"})
    assert (names(packed), packed.files) == (["helpers.py", "train.py"], 2)
    with pytest.raises(CodeError, match=r"helpers\.py: the name is needed for the function: rename this file"):
        pack(source, extra={"helpers.py": "pass"})


# -- the digest -------------------------------------------------------------------------------------------------


def test_the_digest_depends_on_names_contents_links_and_modes_alone(tmp_path: Path) -> None:
    first = folder(tmp_path / "first", "a.py", "b/c.py")
    second = folder(tmp_path / "second", "b/c.py", "a.py")
    (second / "a.py").chmod(0o600)  # of its mode, only whether it is a program counts
    os.utime(second / "a.py", (1, 1))
    assert pack(first) == pack(second)

    digests = [pack(first).digest]
    (second / "a.py").chmod(0o700)
    digests.append(pack(second).digest)
    (second / "a.py").write_text("other")
    digests.append(pack(second).digest)
    (second / "a.py").rename(second / "d.py")
    digests.append(pack(second).digest)
    (second / "e.py").symlink_to("d.py")
    digests.append(pack(second).digest)
    assert len(set(digests)) == len(digests)


def test_no_owner_and_no_time_is_stored_and_times_can_be_written_to_a_zip_file(tmp_path: Path) -> None:
    for member in members(pack(folder(tmp_path, "a/b.py"))):
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
        assert member.mtime > 315_532_800, "1 January 1980, where times of zip files begin"


# -- what is refused --------------------------------------------------------------------------------------------


def test_a_directory_that_is_none_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CodeError, match="the name of the directory is empty"):
        pack("")
    assert refusal(tmp_path / "none") == f"{tmp_path}/none: directory not found"
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file") == (
        f"{tmp_path}/file: is not a directory: name the directory that holds the code"
    )


@pytest.mark.parametrize("files", [(), ("a.csv",), ("__pycache__/a.pyc",)])
def test_a_directory_without_files_is_refused(tmp_path: Path, files: tuple[str, ...]) -> None:
    (tmp_path / "empty").mkdir()
    source = folder(tmp_path, *files, ignore="*.csv\n")
    assert refusal(source) == f"{source}: there is no file to pack; files that .dtjignore excludes do not count"


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a file or directory unreadable, for root too, which ignores modes."""
    denied: set[str] = set()
    scandir, read_bytes = os.scandir, Path.read_bytes

    def check(path: object) -> None:
        if os.path.normpath(str(path)) in denied:
            raise PermissionError(13, "Permission denied", str(path))

    def checked_scandir(path: Path) -> object:
        check(path)
        return scandir(path)

    def checked_read(path: Path) -> bytes:
        check(path)
        return read_bytes(path)

    monkeypatch.setattr(os, "scandir", checked_scandir)
    monkeypatch.setattr(Path, "read_bytes", checked_read)
    return lambda path: denied.add(str(path))


@pytest.mark.parametrize("path", ["a.py", "package", "package/b.py"])
def test_what_cannot_be_read_is_named(tmp_path: Path, unreadable: Callable[[Path], None], path: str) -> None:
    source = folder(tmp_path, "a.py", "package/b.py")
    unreadable(source / path)
    assert refusal(source).rstrip("/").startswith(f"{source}/{path}")
    assert "cannot be read: Permission denied; change its permissions, or exclude it in .dtjignore" in refusal(source)


@pytest.mark.parametrize("target", ["../outside", "/etc/passwd", "missing", "data.csv", "b.py", "../source/a.py"])
def test_a_link_to_what_no_pod_has_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").touch()
    source = folder(tmp_path / "source", "a.py", "data.csv", ignore="*.csv\n")
    (source / "b.py").symlink_to(target)
    assert refusal(source) == (
        f"{source}/b.py: is a link to {target}, which is not packed: replace it by a copy or by a relative link within "
        f"{source}, or exclude it in {source}/.dtjignore"
    )


def test_what_is_neither_file_nor_directory_is_refused(tmp_path: Path) -> None:
    source = folder(tmp_path, "a.py")
    os.mkfifo(source / "pipe")
    assert refusal(source).startswith(f"{source}/pipe: is neither a file nor a directory: exclude it in ")


def test_a_name_that_is_not_text_is_packed_as_it_is(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.py")
    (tmp_path / name).touch()
    assert names(pack(tmp_path)) == [name]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\n!\n", 'line 2: "!" is not a pattern as git reads it'),
        (b"a\nb[z-a]\n", 'line 2: "b[z-a]" is not a pattern as git reads it'),
        (b"a\n[z-a]/\n", 'line 2: "[z-a]/" is not a pattern as git reads it'),
        (b"a\n!/\n", 'line 2: "!/" is not a pattern as git reads it'),
        (b"a\n\xff", "byte 2 is not UTF-8 text"),
    ],
)
def test_a_dtjignore_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    source = folder(tmp_path, "a.py")
    (source / IGNORE_FILE).write_bytes(content)
    assert refusal(source) == f"{source}/.dtjignore: {words}"


def test_more_than_a_config_map_holds_is_refused_with_the_largest_files(tmp_path: Path) -> None:
    source = folder(tmp_path, "train.py", "data/small.csv")
    for name, size in (("large.bin", 900 * 2**10), ("larger.bin", 2**20)):
        (source / name).write_bytes(random.Random(name).randbytes(size))
    words = refusal(source)
    assert words.startswith(f"{source}: 4 files, 1.9 MiB, packed 1.9 MiB, is too much: a ConfigMap holds 1.0 MiB: ")
    assert "exclude data in .dtjignore (the largest files: larger.bin 1.0 MiB, large.bin 900.0 KiB, data/sm" in words
    folder(source, ignore="larger.bin\n")
    assert names(pack(source)) == ["data/small.csv", "large.bin", "train.py"]


def test_a_gigabyte_of_zeros_is_refused_before_it_is_read(tmp_path: Path) -> None:
    source = folder(tmp_path, "train.py")
    with (source / "zeros").open("wb") as file:
        file.truncate(2**30)
    assert refusal(source).startswith(f"{source}: 1024.0 MiB of code are too much, at most 64.0 MiB: exclude data in ")


def test_a_home_directory_is_refused_before_all_of_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_pack, "MAX_ENTRIES", 10)
    source = folder(tmp_path, *(f"file-{number}" for number in range(11)))
    assert refusal(source).startswith(f"{source}: more than 10 files: name the directory of the code alone, or ")
