"""The life of a lease, driven through the stock sanlock module.

Arguments: PATH ALIGN_SIZE SECTOR_SIZE. Prints "complete" at the end; any difference from what
vdsm and other users of the module rely on raises an exception.
"""

import sys
import time

import sanlock

PATH, ALIGN, SECTOR = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
LS, RES = b"LS", b"R1"
DISKS = [(PATH, ALIGN)]
SIZES = {"align": ALIGN, "sector": SECTOR}


def expect(what, actual, expected):
    if actual != expected:
        raise AssertionError("%s: expected %r, got %r" % (what, expected, actual))


def expect_errno(what, number, call, *args, **kwargs):
    try:
        result = call(*args, **kwargs)
    except sanlock.SanlockException as error:
        expect(what, error.errno, number)
    else:
        raise AssertionError("%s: expected error %d, got %r" % (what, number, result))


def soon(what, look):
    for _ in range(100):
        if look():
            return
        time.sleep(0.1)
    raise AssertionError("never happened: " + what)


expect_errno("nothing on disk yet", -223, sanlock.read_lockspace, PATH, **SIZES)
sanlock.write_lockspace(LS, PATH, iotimeout=1, **SIZES)
expect("lockspace on disk", sanlock.read_lockspace(PATH, **SIZES), {"lockspace": LS, "iotimeout": 1})
sanlock.write_resource(LS, RES, DISKS, **SIZES)
on_disk = sanlock.read_resource(PATH, ALIGN, **SIZES)
expect("resource on disk", on_disk, {"lockspace": LS, "resource": RES, "version": 0})

expect("not joined", sanlock.inq_lockspace(LS, 1, PATH), False)
sanlock.add_lockspace(LS, 1, PATH, iotimeout=1, wait=False)
expect("being joined", sanlock.inq_lockspace(LS, 1, PATH), None)
expect("joined", sanlock.inq_lockspace(LS, 1, PATH, wait=True), True)
expect_errno("joined already", 17, sanlock.add_lockspace, LS, 1, PATH, iotimeout=1)
expect(
    "lockspaces",
    sanlock.get_lockspaces(),
    [{"lockspace": LS, "host_id": 1, "path": PATH, "offset": 0, "flags": 0}],
)


def alive():
    try:
        hosts = sanlock.get_hosts(LS)
    except sanlock.SanlockException as error:
        expect("host table not ready", error.errno, 11)
        return False
    return [(h["host_id"], h["generation"], h["io_timeout"], h["flags"]) for h in hosts] == [
        (1, 1, 1, sanlock.HOST_LIVE)
    ]


soon("this host is seen alive", alive)

fd = sanlock.register()
expect("nothing held", sanlock.inquire(slkfd=fd), [])
expect("no owner", sanlock.read_resource_owners(LS, RES, DISKS, **SIZES), [])
sanlock.acquire(LS, RES, DISKS, slkfd=fd)
held = {"lockspace": LS, "resource": RES, "flags": sanlock.RES_LVER, "version": 1, "disks": DISKS}
expect("held", sanlock.inquire(slkfd=fd), [held])
owners = sanlock.read_resource_owners(LS, RES, DISKS, **SIZES)
expect("owner", [(o["host_id"], o["generation"]) for o in owners], [(1, 1)])
expect_errno("held already", 17, sanlock.acquire, LS, RES, DISKS, slkfd=fd)
expect_errno("no such process", 3, sanlock.inquire, pid=1)
expect_errno("used", 16, sanlock.rem_lockspace, LS, 1, PATH, unused=True)

sanlock.release(LS, RES, DISKS, slkfd=fd)
expect("nothing held any more", sanlock.inquire(slkfd=fd), [])
expect("no owner any more", sanlock.read_resource_owners(LS, RES, DISKS, **SIZES), [])
expect("version is kept", sanlock.read_resource(PATH, ALIGN, **SIZES)["version"], 1)
expect_errno("not held", 1, sanlock.release, LS, RES, DISKS, slkfd=fd)
expect_errno("another version", -240, sanlock.acquire, LS, RES, DISKS, slkfd=fd, version=7)
sanlock.acquire(LS, RES, DISKS, slkfd=fd, version=1)
sanlock.release(LS, RES, DISKS, slkfd=fd)

sanlock.rem_lockspace(LS, 1, PATH)
expect("left", sanlock.inq_lockspace(LS, 1, PATH), False)
expect("no lockspaces", sanlock.get_lockspaces(), [])
expect_errno("not joined any more", 28, sanlock.acquire, LS, RES, DISKS, slkfd=fd)
sanlock.write_resource(LS, RES, DISKS, clear=True, **SIZES)
expect_errno("cleared", -223, sanlock.read_resource, PATH, ALIGN, **SIZES)
print("complete")
