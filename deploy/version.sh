#!/bin/sh
# version.sh RELEASE   prints the version of this tree: RELEASE+COMMITS.gCOMMIT, as in 0.1.0+1480.g7f2520b9
#
# COMMITS counts all commits up to this one, and so a later commit is a later version, for apt as well: 0.1.0 < 0.1.0+9.g1 <
# 0.1.0+10.g2 < 0.1.1. No tag is asked: one that is made late would let the count fall. What cannot be known is said:
#
#   0.1.0+1480.g7f2520b9.dirty   files that git knows were changed since
#   0.1.0+0.g7f2520b9.shallow    a clone without its history, where commits cannot be counted
#   0.1.0+0.unknown              neither git nor a file `release`
#
# A tarball (`make dist`) has its version in the file `release`.
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd -P)
if [ -e "$tree/release" ]; then
    cat "$tree/release"
    exit
fi
# Without locks: a make beside a commit is in nobody's way. The tree may be another user's (sudo make install).
git() { GIT_OPTIONAL_LOCKS=0 command git -C "$tree" -c safe.directory="$tree" "$@" 2>/dev/null; }
# A tree that was unpacked inside another repository is not what that repository counts.
if [ "$(git rev-parse --show-toplevel)" != "$tree" ] || ! commit=$(git rev-parse --short=8 HEAD); then
    echo "$1+0.unknown"
    exit
fi
count=0 mark=.shallow
if [ "$(git rev-parse --is-shallow-repository)" = false ]; then
    count=$(git rev-list --count HEAD)
    mark=
fi
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then mark=$mark.dirty; fi
echo "$1+$count.g$commit$mark"
