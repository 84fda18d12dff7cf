#!/bin/sh
# Builds what the guests boot.
#
#   image.sh base DIR                      DIR/vmlinuz and DIR/base.cpio: Debian's kernel, modules, busybox (once)
#   image.sh programs OUT GUEST=HOST...    OUT: an archive of programs (path in the guest = file here) and their libraries
#
# The kernel package is only downloaded and unpacked, never installed. Nothing here needs root.
set -eu
umask 022
PATH=$PATH:/usr/sbin:/sbin
modules="softdog i6300esb iTCO_wdt i2c-i801 lpc_ich ib700wdt virtio_pci virtio_blk dm-mod"

kernel_package() {
    apt-cache depends linux-image-amd64 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1
}

download() {
    package=$(kernel_package)
    [ -n "$package" ] && (cd "$1" && apt-get download -q -o APT::Sandbox::User=root "$package" >&2)
}

base() {
    mkdir -p "$1"
    # A base made for another list of modules is made again.
    [ ! -e "$1/base.cpio" ] || [ "$(cat "$1/modules" 2>/dev/null)" != "$modules" ] || return 0
    work=$(mktemp -d "$1/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # The lists may be missing or out of date.
    if ! download "$work" && { [ "$(id -u)" != 0 ] || ! apt-get update -q >&2 || ! download "$work"; }; then
        echo "the kernel package cannot be downloaded; does apt-get update work?" >&2
        exit 1
    fi
    kernel=$(kernel_package)
    dpkg-deb -x "$work/$kernel"_*.deb "$work/kernel"
    version=${kernel#linux-image-}
    depmod -b "$work/kernel" "$version"
    root=$work/root
    for dir in bin sbin usr/bin usr/sbin lib64 lib/x86_64-linux-gnu dev proc sys run tmp etc root var/log; do
        mkdir -p "$root/$dir"
    done
    cp "$(command -v busybox)" "$root/bin/busybox"
    target=$root/lib/modules/$version
    mkdir -p "$target"
    for module in $modules; do
        modprobe -d "$work/kernel" -S "$version" --show-depends "$module"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u | while read -r file; do
        inside=${file#"$work/kernel/lib/modules/$version/"}
        mkdir -p "$target/$(dirname "$inside")"
        cp "$file" "$target/$inside"
    done
    cp "$work/kernel/lib/modules/$version"/modules.builtin "$work/kernel/lib/modules/$version"/modules.builtin.modinfo \
        "$work/kernel/lib/modules/$version"/modules.order "$target/"
    depmod -b "$root" "$version"
    printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
    printf 'root:x:0:\nsanlock:x:179:\n' >"$root/etc/group"
    printf 'passwd: files\ngroup: files\n' >"$root/etc/nsswitch.conf"
    (cd "$root" && find . | cpio -o -H newc --quiet) >"$work/base.cpio"
    cp "$work/kernel/boot/vmlinuz-$version" "$1/vmlinuz"
    mv "$work/base.cpio" "$1/base.cpio"
    # Last: it says that everything is there.
    echo "$modules" >"$1/modules"
}

programs() {
    out=$1
    shift
    work=$(mktemp -d "$out.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    for pair in "$@"; do
        inside=${pair%%=*}
        file=${pair#*=}
        mkdir -p "$work/$(dirname "$inside")"
        # Debug information would only make the guest slow to boot.
        strip -o "$work/$inside" "$file" 2>/dev/null || cp -L "$file" "$work/$inside"
        chmod 755 "$work/$inside"
        # A static program or a script has no libraries.
        ldd "$file" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p' |
            while read -r library; do
                mkdir -p "$work/$(dirname "$library")"
                cp -L "$library" "$work/$library"
            done
    done
    (cd "$work" && find . | cpio -o -H newc --quiet) >"$work.cpio"
    mv "$work.cpio" "$out"
}

"$@"
