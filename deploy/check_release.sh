#!/bin/sh
# Installs the wheel of a release into clean environments and runs it:
#
#   sh deploy/check_release.sh FOLDER [PYTHON]     FOLDER: has one wheel
#
# A plain install must send and receive with a broker of another environment. It must name the missing extra where
# the broker is asked for.
set -eu

folder=$(cd "$1" && pwd)
python=${2:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
wheel=$(echo "$folder"/rmq-*.whl)
[ -f "$wheel" ] || { echo "check_release.sh: $folder must hold one wheel" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Nothing of the checkout may be imported.
cd "$work"
unset PYTHONPATH

install() {
  "$python" -m venv "$work/$1"
  "$work/$1/bin/python" -m pip install --quiet --disable-pip-version-check -c "$here/constraints.txt" "$wheel$2"
}

install plain ""
"$work/plain/bin/python" -m pip check
refusal=$("$work/plain/bin/rmq-broker" --standalone 2>&1) && {
  echo "check_release.sh: rmq-broker ran without the extra broker" >&2; exit 1; }
case $refusal in
  *"pip install 'rmq[broker]'"*) ;;
  *) echo "check_release.sh: rmq-broker does not name the extra: $refusal" >&2; exit 1 ;;
esac

install full "[testing]"
"$work/full/bin/python" -m pip check
for command in rmq-namesrv rmq-broker; do
  "$work/full/bin/$command" --version
done
"$work/full/bin/rmq-health" --help > "$work/help"
"$work/full/bin/rmq-store" --help > "$work/help"
cp "$here/examples/quickstart.py" "$work"
"$work/full/bin/python" -m rmq_testing -- \
  sh -c '"$1" "$2" "$NAMESRV_ADDR"' sh "$work/plain/bin/python" "$work/quickstart.py"
cat > "$work/test_release.py" <<'TEST'
def test_the_plugin_is_there(rmq_blocking_broker, rmq_topic):
    rmq_blocking_broker.publish(rmq_topic, "4711")
    rmq_blocking_broker.expect(rmq_topic)
TEST
"$work/full/bin/python" -m pytest --quiet -p no:cacheprovider "$work/test_release.py"
echo "$(basename "$wheel"): installed and run"
