#!/bin/sh
# dist.sh BUILD VERSION   the sources of the last commit as BUILD/traind-VERSION.tar.gz (`make dist`)
#
# The file `release` in it is the version: what is unpacked has no git to ask (deploy/version.sh).
set -eu
build=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
case $2 in
*.dirty | *.shallow | *.unknown)
    echo "no tarball of version $2: commit what was changed, in a clone that has its history" >&2
    exit 1
    ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "$2" >"$folder/release"
git archive --format=tar.gz --prefix="traind-$2/" --add-file="$folder/release" -o "$build/traind-$2.tar.gz" HEAD
echo "$build/traind-$2.tar.gz"
