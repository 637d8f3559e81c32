#!/usr/bin/env bash
# Make a virtual environment from lock files: once for each content of them.
#   usage: scripts/make_venv.sh DIRECTORY "WHAT IT IS" LOCK...
# pip does the work, so mirrors and proxies are taken from the usual variables (PIP_INDEX_URL, HTTPS_PROXY, ...).
set -euo pipefail

directory=$1 what=$2
shift 2
stamp=$directory/.lock-sha256
wanted=$(cat "$0" "$@" | sha256sum | cut -d' ' -f1)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

# A Python of 3.11 to 3.13, for which TensorFlow is built: the one of PYTHON, else python3, else the newest that is
# installed. Where an environment is active, the Python that it was made from: it may be the environment that is
# replaced here.
find_python() {
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        "$name" - <<'END' 2>/dev/null && return
import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(1)
if sys.prefix == sys.base_prefix:
    print(sys.executable)
else:
    print(f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}")
END
    done
    return 1
}

# A line for each package that pip collects. Not by awk: mawk, Debian's, reads a pipe in blocks and prints all of it at
# the end.
show_steps() {
    local count=0 word name
    while read -r word name _; do
        case $word in
        Collecting) echo "  [$((++count))/$total] $name" ;;
        Installing) echo "  installing $count packages" ;;
        esac
    done
}

install_debian_packages() {
    local sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    echo "  installing Debian packages: $*"
    if ! { $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null; then
        echo "error: could not install $*; install them by hand and try again" >&2
        exit 1
    fi
}

if ! python=$(find_python) && ! command -v python3 >/dev/null; then
    install_debian_packages python3 python3-venv
    python=$(find_python) || true
fi
[ -n "$python" ] || {
    echo "error: Python 3.11 to 3.13 is needed, for which TensorFlow is built; found $(python3 --version 2>&1 || echo none). Set PYTHON=/path/to/python" >&2
    exit 1
}
"$python" -c 'import ensurepip, venv' 2>/dev/null || install_debian_packages python3-venv

echo "setting up $what in $directory ($("$python" --version))"
rm -rf "$directory"
"$python" -m venv "$directory"
total=$(cat "$@" | grep -cE '^[a-z0-9].*==' || true)
requirements=()
for lock in "$@"; do requirements+=(-r "$lock"); done
"$directory/bin/pip" install --disable-pip-version-check --no-deps --require-hashes "${requirements[@]}" |
    show_steps
echo "$wanted" >"$stamp"
