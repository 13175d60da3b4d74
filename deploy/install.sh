#!/bin/sh
# install.sh all|built BUILD   puts what was built under $DESTDIR$PREFIX (`make install`, `make install-built`)
# install.sh remove            takes away what that put there, and nothing else (`make uninstall`)
#
# Environment: PREFIX, DESTDIR (a root that is packed and moved to / later: nothing installed names it), VERSION.
# Each file that is put is written down in share/traind/installed, which is what is removed. `built` leaves manual pages
# and completions out, which a program makes by running.
set -eu
umask 022
cd "$(dirname "$0")/.."
to=${DESTDIR-}$PREFIX
list=share/traind/installed

# put MODE FILE FOLDER [NAME]
put() {
    install -d "$to/$3"
    install -m "$1" "$2" "$to/$3/${4-${2##*/}}"
    echo "$3/${4-${2##*/}}" >>"$to/$list"
}

# fill FILE.in FOLDER NAME: names the prefix and the version
fill() {
    made=$(mktemp)
    sed -e "s|@PREFIX@|$PREFIX|g" -e "s|@VERSION@|$VERSION|g" "$1" >"$made"
    put 644 "$made" "$2" "$3"
    rm -f "$made"
}

# tree FOLDER TO: all files below it that git would keep
tree() {
    (cd "$1" && find . -type f ! -name '*.o' ! -name '*.so' ! -name '*.pyc' | LC_ALL=C sort) | while read -r file; do
        file=${file#./}
        folder=$2
        case $file in */*) folder=$2/${file%/*} ;; esac
        mode=644
        if [ -x "$1/$file" ]; then mode=755; fi
        put $mode "$1/$file" "$folder"
    done
}

remove() {
    if [ ! -e "$to/$list" ]; then
        echo "nothing to remove: there is no $to/$list" >&2
        exit 0
    fi
    LC_ALL=C sort -u "$to/$list" | while read -r file; do
        rm -f "$to/$file"
        folder=${file%/*}
        while [ "$folder" != "${folder#*traind}" ]; do # its own folders, when nothing of others is in them
            rmdir "$to/$folder" 2>/dev/null || break
            folder=${folder%/*}
        done
    done
    rm -f "$to/$list"
    rmdir "$to/share/traind" 2>/dev/null || true
}

programs_and_headers() {
    for program in "$1"/bin/*; do put 755 "$program" bin; done
    put 644 "$1/lib/libtraind.so" lib
    for plugin in "$1"/lib/traind/*.so; do put 644 "$plugin" lib/traind; done
    for header in include/traind/*; do put 644 "$header" include/traind; done
    fill deploy/traind.pc.in lib/pkgconfig traind.pc
    fill deploy/systemd/traind.service.in lib/systemd/system traind.service
    fill deploy/systemd/traind-node.service.in lib/systemd/system traind-node.service
    put 644 deploy/systemd/traind.sysusers lib/sysusers.d traind.conf
    tree proto share/traind/proto
    tree examples share/traind/examples
}

pages_and_completions() {
    for page in "$1"/man/*.[158]; do put 644 "$page" "share/man/man${page##*.}"; done
    made=$(mktemp -d)
    for shell in bash zsh fish; do "$1/bin/trainctl" completion $shell >"$made/$shell"; done
    put 644 "$made/bash" share/bash-completion/completions trainctl
    put 644 "$made/zsh" share/zsh/site-functions _trainctl
    put 644 "$made/fish" share/fish/vendor_completions.d trainctl.fish
    rm -rf "$made"
}

case $1 in
remove) remove ;;
built | all)
    install -d "$to/share/traind"
    programs_and_headers "$2"
    if [ "$1" = all ]; then pages_and_completions "$2"; fi
    ;;
*)
    sed -n '2,3p' "$0" >&2
    exit 2
    ;;
esac
