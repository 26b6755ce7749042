#!/bin/sh
# Builds a compiled wheel for each Python from 3.11 to 3.14 that is found:
#
#   sh deploy/build_wheels.sh FOLDER [PYTHON…]     FOLDER: for the wheels; PYTHON: only these interpreters
#
# Interpreters are looked for on the PATH and in ~/.pyenv/versions.
set -eu

folder=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -eq 0 ]; then
  for version in 3.11 3.12 3.13 3.14; do
    for python in "$HOME/.pyenv/versions/$version".*/bin/python "python$version"; do
      if "$python" -c '' 2> /dev/null; then
        set -- "$@" "$python"
        break
      fi
    done
  done
fi
[ $# -gt 0 ] || { echo "build_wheels.sh: there is no Python from 3.11 to 3.14" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for python in "$@"; do
  "$python" -m venv --clear "$work/venv"
  RMQ_COMPILE=1 "$work/venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --wheel-dir "$folder" "$here"
done
ls "$folder"/rmq-*.whl
