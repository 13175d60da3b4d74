#!/bin/bash
# debian13.sh FOLDER [TARGET...]: builds this tree in a Debian 13 and runs targets of its Makefile
# there; without any: unit (conformance is among it), clang and demo. Debian 13 has oneDNN 3, newer
# compilers and a newer python; this machine need not be one.
#
# FOLDER/root is a Debian 13 made with debootstrap from the mirror that apt uses here; it is kept, and
# the tree's build folder in it, so that the next run is short. Remove FOLDER to begin again. The tree
# is copied as it is, uncommitted changes too. What is missing is installed by its own `make deps`.
# Everything runs in mount and process namespaces of its own: nothing stays mounted or running.
#
# Where that cannot be had (not root, no debootstrap, no mirror, no mounts), the last line is
# "no Debian 13 root: why" and the exit status 0; a failed build or test ends with another status.
set -euo pipefail
folder=${1:?usage: debian13.sh FOLDER [TARGET...]}
shift
targets=("$@")
[ ${#targets[@]} != 0 ] || targets=(unit clang demo)
here=$(realpath "$(dirname "$0")/../..")
suite=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

none() {
    echo "no Debian 13 root: $1"
    exit 0
}

# ---- the root -------------------------------------------------------------------------------------
[ "$(id -u)" = 0 ] || none "this needs root"
mkdir -p "$folder"
folder=$(realpath "$folder")
root=$folder/root
inside=(unshare --mount --pid --fork --kill-child)
"${inside[@]}" true 2>/dev/null || none "no namespaces may be made here"

# The first mirror of Debian in apt's configuration, of either format, but not of security alone.
mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources \
        2>/dev/null | sed -nE 's,^(deb( \[[^]]*\])?|URIs:) +([a-z]+://[^ ]+/debian)/?( .*)?$,\3,p' |
        grep -v security | head -1
}

make_root() {
    local from
    command -v debootstrap >/dev/null || none "debootstrap is not installed"
    [ -e $keyring ] || none "debian-archive-keyring is not installed"
    from=$(mirror || true)
    [ -n "$from" ] || none "apt knows no mirror of Debian"
    rm -rf "$root.part"
    echo "making a Debian 13 from $from"
    debootstrap --variant=minbase --keyring=$keyring --include=ca-certificates,git,make \
        $suite "$root.part" "$from" >"$folder/debootstrap.log" 2>&1 ||
        none "debootstrap failed, see $folder/debootstrap.log"
    # How this machine reaches its mirror, and the certificates it trusts.
    apt-config dump | grep -E '^Acquire::(https?|Check|Retries)' >"$root.part/etc/apt/apt.conf.d/90host" || true
    mv "$root.part" "$root"
}
[ -d "$root" ] || make_root
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -e $file ] || install -D -m 644 $file "$root$file"
done

# ---- the tree -------------------------------------------------------------------------------------
tree=$root/src/traind
mkdir -p "$tree"
find "$tree" -mindepth 1 -maxdepth 1 ! -name 'build*' -exec rm -rf {} +
cd "$here"
git ls-files -coz --exclude-standard | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
done | tar --create --null --files-from=- | tar --extract --directory="$tree"

# ---- run ------------------------------------------------------------------------------------------
keep=()
for name in CI WERROR http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_EXTRA_INDEX_URL; do
    [ -z "${!name:-}" ] || keep+=("$name=${!name}")
done
# shellcheck disable=SC2016 # for the shell inside
exec "${inside[@]}" bash -euc '
    root=$1; shift
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t tmpfs tmpfs "$root/tmp"
    exec chroot "$root" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
' bash "$root" "${keep[@]}" bash -euc '
    cd /src/traind
    git init -q . && git add -A
    [ -n "$(ls /var/lib/apt/lists/*Packages* 2>/dev/null)" ] || apt-get -qq update
    make deps >/src/deps.log 2>&1 || { tail -20 /src/deps.log; exit 1; }
    make config
    for target in "$@"; do
        make "$target"
        echo "debian13: $target passed"
    done
' bash "${targets[@]}"
