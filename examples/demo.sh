#!/bin/bash
# make demo: trains Fashion-MNIST through the whole system, with a daemon of its own that is stopped
# at the end. Usage: examples/demo.sh BUILD_DIR. Exit 0 only if the job succeeded.
set -euo pipefail
build=$(realpath "${1:-build}")
here=$(realpath "$(dirname "$0")")
bin=$build/bin
export TRAIND_STATE_DIR=$build/demo
unset TRAIND_ADDRESS TRAIND_TOKEN_FILE

rm -rf "$TRAIND_STATE_DIR"
mkdir -p -m 700 "$TRAIND_STATE_DIR" # its user's alone, as traind wants it
"$bin/traind" 2>"$TRAIND_STATE_DIR/traind.log" &
daemon=$!
stop() {
    kill -TERM $daemon 2>/dev/null && wait $daemon 2>/dev/null || true
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The daemon says where it listens by writing `address`, after it listens.
for _ in $(seq 100); do
    [ -s "$TRAIND_STATE_DIR/address" ] && break
    if ! kill -0 $daemon 2>/dev/null; then
        echo "traind did not start; the end of its log:" >&2
        tail -5 "$TRAIND_STATE_DIR/traind.log" >&2
        exit 1
    fi
    sleep 0.05
done
echo "traind $("$bin/trainctl" version -o name) listens on $(cat "$TRAIND_STATE_DIR/address")"

job=$("$bin/trainctl" submit "$here/fashion-mnist.yaml" -o name)
echo "submitted $job: examples/fashion-mnist.yaml"
"$bin/trainctl" wait "$job" --follow --timeout 600 || {
    "$bin/trainctl" describe "$job" >&2
    "$bin/trainctl" logs "$job" >&2 || true
    exit 1
}
accuracy=$("$bin/trainctl" describe "$job" -o json | sed -n 's/.*"test_accuracy": *\([0-9.]*\).*/\1/p' | head -1)
echo
echo "test accuracy  $accuracy"
checkpoint=$("$bin/trainctl" checkpoint list "$job" -o json | sed -n 's/.*"directory": *"\(.*\)".*/\1/p' | head -1)
echo "checkpoint     $checkpoint"
echo
echo "Next, with a daemon of your own (from the top of the tree):"
echo "    export TRAIND_STATE_DIR=\$HOME/.local/state/traind PATH=\$PWD/$1/bin:\$PATH"
echo "    traind 2>traind.log &"
echo "    trainctl submit examples/fashion-mnist.yaml --set trainer.max_epochs=10 --follow"
echo "    trainctl list; trainctl describe JOB; trainctl metrics JOB; trainctl pause JOB"
