"""Every function of the stock sanlock module that session.py leaves out, on two hosts.

Arguments: RUN_DIR_1 RUN_DIR_2 PATH ALIGN_SIZE SECTOR_SIZE PART. Each part has a lockspace of its own.
Prints "complete" at the end; any difference from what users of the module rely on raises an exception.
"""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time

PATH, ALIGN, SECTOR, PART = sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
SIZES = {"align": ALIGN, "sector": SECTOR}
LS = b"LS"


def serve(calls, run_dir):
    """The process of a host: the library looks for the daemon once, so each host needs one."""
    os.environ["SANLOCK_RUN_DIR"] = run_dir
    import sanlock

    while True:
        name, args, kwargs = calls.recv()
        try:
            calls.send((getattr(sanlock, name)(*args, **kwargs), None))
        except Exception as error:
            calls.send((None, error))


class Host:
    """The sanlock module as a process on this host has it. Nothing is registered at first."""

    def __init__(self, number, run_dir):
        self.calls, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=serve, args=(theirs, run_dir), daemon=True)
        self.process.start()
        self.number, self.run_dir = number, run_dir

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.send((name, args, kwargs))
            result, error = self.calls.recv()
            if error is not None:
                raise error
            return result

        return call


def disks(area):
    return [(PATH, area * ALIGN)]


def expect(what, actual, expected):
    if actual != expected:
        raise AssertionError("%s: expected %r, got %r" % (what, expected, actual))


def expect_errno(what, number, call, *args, **kwargs):
    try:
        result = call(*args, **kwargs)
    except sanlock.SanlockException as error:
        expect(what, error.errno, number)
        return error
    raise AssertionError("%s: expected error %r, got %r" % (what, number, result))


def expect_raises(what, kind, call, *args, **kwargs):
    try:
        result = call(*args, **kwargs)
    except kind as error:
        expect(what + ": kind", type(error), kind)
        return error
    raise AssertionError("%s: expected %s, got %r" % (what, kind, result))


def soon(what, look, seconds=20):
    for _ in range(seconds * 10):
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("never happened: " + what)


def join(*hosts):
    """Makes the lockspace and its leases, joins it, and waits until everybody sees everybody."""
    hosts[0].write_lockspace(LS, PATH, iotimeout=1, **SIZES)
    for area in range(1, 5):
        hosts[0].write_resource(LS, b"R%d" % area, disks(area), **SIZES)
    for host in hosts:
        host.add_lockspace(LS, host.number, PATH, iotimeout=1, wait=False)
    for host in hosts:
        soon("joined", lambda: host.inq_lockspace(LS, host.number, PATH, wait=True))
    alive = {host.number: sanlock.HOST_LIVE for host in hosts}
    soon("all are seen alive", lambda: all(states(host) == alive for host in hosts))


def states(host):
    """The hosts as this one sees them."""
    try:
        return {h["host_id"]: h["flags"] for h in host.get_hosts(LS)}
    except sanlock.SanlockException as error:
        expect("host table not ready", error.errno, 11)
        return {}


@contextlib.contextmanager
def registered(host):
    """A process that has registered with a host's daemon."""
    program = "import sanlock, sys; fd = sanlock.register(); print(fd, flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "SANLOCK_RUN_DIR": host.run_dir},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


def surface(one, _two):
    """Names and numbers, and what is refused before anything is asked."""
    functions = (
        "acquire add_lockspace end_event get_alignment get_event get_hosts get_lockspaces get_lvb "
        "inq_lockspace inquire killpath read_lockspace read_resource read_resource_owners reg_event register "
        "release rem_lockspace request set_event set_lvb write_lockspace write_resource"
    )
    callables = [name for name in dir(sanlock) if callable(getattr(sanlock, name)) and name[0] != "_"]
    expect("functions", sorted(callables), sorted(functions.split() + ["SanlockException"]))

    expect("alignment of a device", one.get_alignment(PATH), ALIGN)
    expect_errno("alignment of nothing", 2, one.get_alignment, PATH + ".missing")

    for read, missing in ((one.read_lockspace, 19), (one.read_resource, 2)):
        expect_raises("align", ValueError, read, PATH, align=ALIGN + 1)
        expect_raises("sector", ValueError, read, PATH, sector=SECTOR + 1)
        expect_errno("no file", missing, read, PATH + ".missing", **SIZES)
    for wrong in ({"align": 1}, {"sector": 1}):
        expect_raises("sizes", ValueError, one.write_lockspace, LS, PATH, **wrong)
        expect_raises("sizes", ValueError, one.write_resource, LS, b"R1", disks(1), **wrong)
        expect_raises("sizes", ValueError, one.read_resource_owners, LS, b"R1", disks(1), **wrong)
    expect_raises("disks", ValueError, one.write_resource, LS, b"R1", ["no tuple"])
    expect_errno("no disks", 22, one.write_resource, LS, b"R1", [], **SIZES)
    expect_errno("no file", 19, one.write_lockspace, LS, PATH + ".missing", **SIZES)

    one.write_lockspace(LS, PATH, offset=2 * ALIGN, max_hosts=1, iotimeout=7, **SIZES)
    elsewhere = one.read_lockspace(PATH, offset=2 * ALIGN, **SIZES)
    expect("lockspace elsewhere", elsewhere, {"lockspace": LS, "iotimeout": 7})
    expect_errno("a lockspace is no resource", -223, one.read_resource, PATH, offset=2 * ALIGN, **SIZES)
    one.write_resource(LS, b"R1", disks(1), num_hosts=3, **SIZES)
    expect_errno("a resource is no lockspace", -223, one.read_lockspace, PATH, offset=ALIGN, **SIZES)
    expect_raises("text", TypeError, one.write_resource, "LS", b"R1", disks(1), **SIZES)
    many = disks(3) + disks(4) + disks(5)
    one.write_resource(LS, b"of three disks", many, max_hosts=2, **SIZES)
    for _, offset in many:
        on_disk = one.read_resource(PATH, offset, **SIZES)
        expect("on disk", on_disk, {"lockspace": LS, "resource": b"of three disks", "version": 0})

    expect("nothing joined", one.get_lockspaces(), [])
    expect_errno("unknown lockspace", 2, one.get_hosts, LS)
    expect_errno("unknown lockspace", 2, one.rem_lockspace, LS, 1, PATH)
    expect_errno("unknown lockspace", 2, one.set_event, LS, 1, 1, 1)
    expect_errno("unknown lockspace", 2, one.reg_event, LS)
    expect_errno("not a lockspace", -223, one.add_lockspace, LS, 1, PATH, offset=ALIGN, iotimeout=1)
    expect("not joined", one.get_lockspaces(), [])

    nowhere = Host(3, tempfile.gettempdir() + "/no-daemon-here")
    error = expect_errno("no daemon", 2, nowhere.register)
    expect("its arguments", error.args, (2, "Sanlock registration failed", "No such file or directory"))
    expect_errno("no daemon", 2, nowhere.get_lockspaces)
    expect_errno("no daemon", 2, nowhere.add_lockspace, LS, 1, PATH)


def targets(one, two):
    """Leases for another process, in both modes, on several disks."""
    join(one, two)
    expect("one host", [h["host_id"] for h in one.get_hosts(LS, 2)], [2])
    expect("a free host_id", [h["flags"] for h in one.get_hosts(LS, 3)], [sanlock.HOST_FREE])
    expect_errno("neither process nor connection", 22, one.acquire, LS, b"R1", disks(1))
    expect_errno("no registered process", 3, one.acquire, LS, b"R1", disks(1), pid=1)
    expect_errno("no registered process", 3, one.release, LS, b"R1", disks(1), pid=1)

    with registered(one) as first, registered(two) as second:
        one.acquire(LS, b"R1", disks(1), pid=first.pid)
        held = {"lockspace": LS, "resource": b"R1", "flags": sanlock.RES_LVER, "version": 1, "disks": disks(1)}
        expect("held by another process", one.inquire(pid=first.pid), [held])
        expect_errno("held elsewhere", -243, two.acquire, LS, b"R1", disks(1), pid=second.pid)
        one.release(LS, b"R1", disks(1), pid=first.pid)
        expect("released", one.inquire(pid=first.pid), [])

        one.acquire(LS, b"R2", disks(2), pid=first.pid, shared=True)
        shared = one.inquire(pid=first.pid)
        expect("shared", [(r["resource"], r["flags"]) for r in shared], [(b"R2", sanlock.RES_SHARED)])
        two.acquire(LS, b"R2", disks(2), pid=second.pid, shared=True)
        owners = two.read_resource_owners(LS, b"R2", disks(2), **SIZES)
        expect("owners", sorted(o["host_id"] for o in owners), [1, 2])
        two.release(LS, b"R2", disks(2), pid=second.pid)
        expect_errno("shared elsewhere", 11, two.acquire, LS, b"R2", disks(2), pid=second.pid)
        first.kill()
        first.wait()

        def exclusive():
            try:
                two.acquire(LS, b"R2", disks(2), pid=second.pid)
            except sanlock.SanlockException as error:
                expect("still shared: %r" % error, error.errno in (11, -243, -244, -245), True)
                return False
            return True

        soon("the lease of the dead process", exclusive)

        many = disks(3) + disks(4)
        two.write_resource(LS, b"R34", many, **SIZES)
        two.acquire(LS, b"R34", many, pid=second.pid)
        held = [r["disks"] for r in two.inquire(pid=second.pid) if r["resource"] != b"R2"]
        expect("its disks", held, [many])
    one.rem_lockspace(LS, 1, PATH, wait=False)
    soon("left", lambda: one.inq_lockspace(LS, 1, PATH) is False)


def requests(one, two):
    """Asking the owner to let go, and the program that is run then."""
    join(one, two)
    with tempfile.TemporaryDirectory() as scratch, registered(two) as stubborn:
        fd = one.register()
        expect_raises("no list", TypeError, one.killpath, "/bin/touch", "no list", slkfd=fd)
        expect_errno("too long", 22, one.killpath, "/" + "x" * 200, ["y"], slkfd=fd)
        one.killpath("/usr/bin/touch", [scratch + "/a b", scratch + "/c"], slkfd=fd)
        one.acquire(LS, b"R1", disks(1), slkfd=fd)
        two.acquire(LS, b"R2", disks(2), pid=stubborn.pid)
        expect_errno("another version", -272, two.request, LS, b"R1", disks(1), version=1)
        two.request(LS, b"R1", disks(1))
        soon("the killpath ran", lambda: sorted(os.listdir(scratch)) == ["a b", "c"])
        # The other way round: a host looks at the requests of one other host once a minute only.
        one.request(LS, b"R2", disks(2), action=sanlock.REQ_FORCE, version=2)
        soon("the other process is killed", lambda: stubborn.poll() is not None)
        expect("its signal", stubborn.returncode, -9)
        expect("the first one goes on", len(one.inquire(slkfd=fd)), 1)
        expect_errno("unknown lockspace", 28, two.request, b"XX", b"R1", disks(1))


def events(one, two):
    """Events between hosts."""
    join(one, two)
    fd = two.reg_event(LS)
    expect_errno("host_id 0", 22, one.set_event, LS, 0, 0, 1)
    one.set_event(LS, 2, 0, 1, data=7, flags=sanlock.SETEV_CUR_GENERATION)
    now = sanlock.SETEV_CUR_GENERATION
    expect_errno("another event while one is set", 16, one.set_event, LS, 2, 0, 2, flags=now)

    def next_events():
        """The stream does not block: it is asked again until there is something."""
        return soon("an event", lambda: two.get_event(fd))

    first = {"from_host_id": 1, "from_generation": 1, "host_id": 2, "generation": 1, "event": 1, "data": 7}
    expect("the event", next_events()[0], first)
    replace = sanlock.SETEV_ALL_HOSTS | sanlock.SETEV_REPLACE_EVENT
    one.set_event(LS, 2, 1, 3, data=2**40, flags=replace)
    # The first one may be seen again: it is in the lease until the next renewal.
    soon("the other event", lambda: (3, 2**40) in [(e["event"], e["data"]) for e in next_events()])
    one.set_event(LS, 2, 1, 3, flags=sanlock.SETEV_CLEAR_HOSTID | sanlock.SETEV_CLEAR_EVENT)
    two.end_event(fd, LS)
    expect_errno("unknown lockspace", 2, two.end_event, two.reg_event(LS), b"XX")


def lvb(one, two):
    """Lock value blocks: what one holder writes the next one reads."""
    join(one, two)
    fd = one.register()
    expect_raises("no size", ValueError, one.get_lvb, LS, b"R1", disks(1), 0)
    expect_raises("too much", ValueError, one.get_lvb, LS, b"R1", disks(1), 4097)
    expect_errno("not held", 2, one.set_lvb, LS, b"R1", disks(1), b"x")
    one.acquire(LS, b"R2", disks(2), slkfd=fd)
    expect_errno("held without the block", 22, one.get_lvb, LS, b"R2", disks(2), 16)
    one.acquire(LS, b"R1", disks(1), slkfd=fd, lvb=True)
    expect("empty at first", one.get_lvb(LS, b"R1", disks(1), 16), b"\0" * 16)
    value = bytes(range(256)) * (SECTOR // 256)
    expect_errno("longer than a sector", 7, one.set_lvb, LS, b"R1", disks(1), value + b"x")
    one.set_lvb(LS, b"R1", disks(1), value)
    expect("what was set", one.get_lvb(LS, b"R1", disks(1), SECTOR), value)
    one.release(LS, b"R1", disks(1), slkfd=fd)
    with registered(two) as second:
        two.acquire(LS, b"R1", disks(1), pid=second.pid, lvb=True)
        expect("what the other host has", two.get_lvb(LS, b"R1", disks(1), SECTOR), value)


hosts = Host(1, sys.argv[1]), Host(2, sys.argv[2])
# After the processes of the hosts: nothing of the module is shared with them.
import sanlock  # noqa: E402

parts = [surface, targets, requests, events, lvb]
{part.__name__: part for part in parts}[PART](*hosts)
print("complete")
