#!/bin/busybox sh
# First process of a guest: loads the modules named on the kernel's command line and takes orders from the second serial
# line, one command a line (the first one, the console, is for what the programs say).
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs t /dev/shm
mount -t tmpfs t /run
ln -sf /proc/self/fd /dev/fd
for word in $(cat /proc/cmdline); do
    case $word in
        guest.modules=*) modules=${word#*=} ;;
        guest.name=*) hostname "${word#*=}" ;;
    esac
done
for module in $(echo "$modules" | tr , ' '); do
    modprobe "$module" || echo "no module $module"
done

# Starts a program that goes on after the order; what it prints goes to the console with its name before each line. Sets
# PID. Nothing it starts is a child of the shell that takes orders: a child's end can end that shell's read.
begin() {
    label=$1
    shift
    mkfifo "/run/$label.out" 2>/dev/null
    (while IFS= read -r line; do echo "$label: $line"; done <"/run/$label.out" >/dev/ttyS0 &)
    ("$@" >"/run/$label.out" 2>&1 </dev/null & echo $! >"/run/$label.pid")
    PID=$(cat "/run/$label.pid")
}

echo "BOOTED $(cut -d' ' -f1 /proc/uptime)"
stty -F /dev/ttyS1 raw -echo
(
    echo READY
    while IFS= read -r order; do eval "$order"; done
) </dev/ttyS1 >/dev/ttyS1 2>&1
poweroff -f
