#!/bin/bash
# arm64.sh ROOT PACKAGE...: makes ROOT, a folder with the headers and libraries of Debian's arm64
# packages and all that they depend on, for a cross build (make CROSS= SYSROOT=) and for qemu-aarch64.
#
# Fetched by apt from the mirrors that it is configured with, but with lists, cache and status of its own
# under ROOT.apt: this machine's dpkg learns of no foreign architecture, and nothing is installed. ROOT is
# made whole or not at all; one that is there is kept while it holds the same packages. No root needed.
#
# Where it cannot be had (no apt, no cross compiler, no qemu, no mirror with arm64), the last line is
# "no arm64 root: why" and the exit status 0.
set -euo pipefail
root=${1:?usage: arm64.sh ROOT PACKAGE...}
shift
own=$root.apt

none() {
    echo "no arm64 root: $1"
    exit 0
}
for tool in apt-get dpkg-deb aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v $tool >/dev/null ||
        none "$tool is not here (apt-get install gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user)"
done
if [ "$(cat "$root/.packages" 2>/dev/null)" = "$*" ]; then exit 0; fi

# ---- fetch ----------------------------------------------------------------------------------------
mkdir -p "$own/state/lists/partial" "$own/cache/archives/partial"
own=$(realpath "$own")
: >"$own/status"
cat >"$own/apt.conf" <<END
#clear APT::Architectures;
APT { Architecture "arm64"; Architectures { "arm64"; }; Install-Recommends "false"; Sandbox::User ""; };
Dir { State "$own/state"; State::status "$own/status"; Cache "$own/cache"; Log "$own"; };
Debug::NoLocking "true";
END
export APT_CONFIG=$own/apt.conf
apt-get -qq update >"$own/log" 2>&1 || true # a mirror without arm64 is no reason to stop
apt-get -qq --yes --download-only install "$@" >>"$own/log" 2>&1 ||
    none "apt cannot get the packages, see $own/log"

# ---- unpack ---------------------------------------------------------------------------------------
rm -rf "$root" "$root.part"
mkdir -p "$root.part"
for package in "$own"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$root.part"
done
# Absolute links would lead out of the folder: the linker follows them on this machine.
find "$root.part" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
    ln -sfnr "$root.part$(readlink "$link")" "$link"
done
echo "$*" >"$root.part/.packages"
mv "$root.part" "$root"
rm -rf "$own/cache" "$own/state"
