#!/bin/sh
# deps.sh PACKAGE...: installs the Debian packages that are missing, and says nothing if none is.
#
# The list is the Makefile's. As root it installs; with sudo on a terminal it asks sudo; anywhere
# else it prints the line to run and stops, because a build must not hang on a password.
set -eu
export DEBIAN_FRONTEND=noninteractive

missing=
for package in "$@"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "missing Debian packages:$missing"
if [ "$(id -u)" = 0 ]; then
    as_root=env
elif [ -t 0 ] && command -v sudo >/dev/null; then
    as_root="sudo env"
else
    echo "this needs root; run the following, then try again:"
    echo "  apt-get update && apt-get install -y --no-install-recommends$missing"
    exit 1
fi
$as_root DEBIAN_FRONTEND=$DEBIAN_FRONTEND apt-get -qq update
# shellcheck disable=SC2086 # the list is meant to be split
$as_root DEBIAN_FRONTEND=$DEBIAN_FRONTEND apt-get -qq install -y --no-install-recommends $missing
