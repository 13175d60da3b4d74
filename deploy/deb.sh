#!/bin/sh
# deb.sh BUILD VERSION   packages of what is built in BUILD, left in BUILD/deb (`make deb`)
#
# dpkg-buildpackage wants a tree of its own with debian/ in it, and writes beside it. That tree has deploy/debian alone:
# its rules call the Makefile of this one, so that nothing is compiled twice. Then lintian, where it is installed: what it
# says of errors or warnings fails.
set -eu
umask 022
tree=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd) # as the Makefile was given it: another name of the folder would build all again
given=$1
version=$2
out=$build/deb
for program in dpkg-buildpackage dh; do
    command -v $program >/dev/null || {
        echo "there is no $program: apt-get install dpkg-dev debhelper" >&2
        exit 1
    }
done
rm -rf "$out"
mkdir -p "$out/traind-$version"
cp -r "$tree/deploy/debian" "$out/traind-$version/debian"
cd "$out/traind-$version"
date=$(git -C "$tree" log -1 --format=%aD 2>/dev/null || date -R)
sed -i -e "s|@VERSION@|$version|" -e "s|@DATE@|$date|" debian/changelog
# -d: what it is built with is checked by the Makefile, which knows other places than Debian's
TRAIND_B=$given TRAIND_TREE=$tree dpkg-buildpackage -b -d -us -uc >../log 2>&1 || {
    tail -30 ../log >&2
    exit 1
}
cd ..
rm -rf "traind-$version"
if command -v lintian >/dev/null; then
    lintian --fail-on error,warning --allow-root ./*.changes
else
    echo "lintian is not installed: packages are not checked"
fi
ls ./*.deb
