#!/usr/bin/env bash
# TensorFlow.js, in which one test loads an exported model, as its lock file says: once for each content of that file.
#   usage: scripts/make_tfjs.sh DIRECTORY
# Where there is no npm it is left out, and the test says so.
set -euo pipefail

directory=$1 lock=tests/trainer/tfjs
command -v node >/dev/null && command -v npm >/dev/null || exit 0
[ -d "$directory/node_modules" ] && cmp -s "$lock/package-lock.json" "$directory/package-lock.json" && exit 0

echo "setting up TensorFlow.js in $directory (node $(node --version))"
rm -rf "$directory"
mkdir -p "$directory"
cp "$lock"/package*.json "$directory"
if ! npm ci --prefix "$directory" --ignore-scripts --no-audit --no-fund --loglevel=error; then
    rm -rf "$directory"
    echo "warning: npm could not install TensorFlow.js: its test is left out" >&2
fi
