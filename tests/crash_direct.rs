//! `kill -9` of the real tools at every one of their I/O calls: what is on disk then can be read, and the same command ends it.
//!
//! Needs strace, which kills at the n-th call before it is carried out. `SANLOCK_IO_ENGINE` chooses the engine as everywhere.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod killed;

use killed::{Scratch, everywhere, strace};
use std::cell::Cell;
use std::process::Command;

const MIB: usize = 1 << 20;

/// Disks with other leases on them: their lockspace is another one, and their resource was used.
fn used_before(scratch: &Scratch) -> Vec<Vec<u8>> {
    scratch.put(&vec![vec![0; 4 * MIB]; 3]);
    for disk in ["a", "b", "c"] {
        scratch.ok(&format!("init -s OLD:0:@{disk}:0"));
        scratch.ok(&format!("init -r LS:R:@{disk}:1M"));
        for (id, generation) in [(2, 4), (3, 5)] {
            scratch.ok(&format!("acquire -r LS:R:@{disk}:1M -i {id} -g {generation}"));
            scratch.ok(&format!("release -r LS:R:@{disk}:1M -i {id} -g {generation}"));
        }
    }
    scratch.get()
}

/// Interrupted, a format has not begun, reads as not formatted, or is complete; done again it is complete.
#[test]
fn a_format_is_not_begun_or_not_there_or_complete() {
    if !strace() {
        return;
    }
    let scratch = Scratch::new();
    for (before, contents) in [(false, vec![vec![0; 4 * MIB]; 3]), (true, used_before(&scratch))] {
        for (init, read, at_least) in [
            ("init -s LS:0:@a:0 -o 1", "read_leader -s LS:1:@a:0", 3),
            ("init -r LS:R:@a:1M -n 8", "read_leader -r LS:R:@a:1M", 3),
            ("init -r LS:R:@a:1M -z 1", "read_leader -r LS:R:@a:1M", 2),
            // Each disk has a thread of its own, and calls are counted for each thread: the first disk is the one that is cut short.
            ("init -r LS:R:@a:1M:@b:1M:@c:1M -n 8", "read_leader -r LS:R:@a:1M", 3),
            ("format -x LS:@a:0", "lookup -x LS:@a:0", 6),
        ] {
            scratch.put(&contents);
            let (found_before, _) = scratch.run(read);
            scratch.ok(init);
            let (found_after, complete) = (scratch.run(read).0, scratch.get());
            let killed = everywhere(&scratch, &contents, init, |call| {
                let (found, why) = scratch.run(read);
                // `read_leader -s` says -1 where nothing begins.
                let nothing =
                    [" done -1\n", " done -223\n", " done -274\n"].iter().any(|none| found.contains(none));
                assert!(
                    found == found_before || nothing || found == found_after,
                    "{init}, killed at call {call}, used before {before}: {found}{why}"
                );
                scratch.ok(init);
                let cleared = init.contains("-z");
                assert!(cleared || scratch.get() == complete, "{init}, killed at call {call} and done again");
            });
            assert!(killed >= at_least, "{init}: {killed}");
        }
    }
}

/// A take or a release is cut short; the host comes back with its next generation, takes the lease, and after it another host does.
#[test]
fn a_lease_can_be_taken_whatever_a_take_or_a_release_left() {
    if !strace() {
        return;
    }
    let scratch = Scratch::new();
    for resource in ["LS:R:@a:1M", "LS:R:@a:1M:@b:1M:@c:1M"] {
        scratch.put(&vec![vec![0; 4 * MIB]; 3]);
        scratch.ok(&format!("init -r {resource} -n 8"));
        let free = scratch.get();
        scratch.ok(&format!("acquire -r {resource} -i 1 -g 7"));
        let held = scratch.get();
        let take = format!("acquire -r {resource} -i 1 -g 7");
        let release = format!("release -r {resource} -i 1 -g 7");
        for (contents, operation) in [(&free, &take), (&held, &release)] {
            let still_held = Cell::new(0);
            let killed = everywhere(&scratch, contents, operation, |call| {
                let (dump, why) = scratch.run("dump @a:1M");
                assert!(dump.contains("R"), "{operation}, killed at call {call}: {dump}{why}");
                let unchanged = scratch.get() == held;
                // Another host is told why not, or gets it, but never both.
                let (other, why) = scratch.run(&format!("acquire -r {resource} -i 2 -g 1"));
                let refused = other.contains("done -241") || other.contains("done -24") && !why.is_empty();
                assert!(refused || other.contains(" done 0\n"), "killed at call {call}: {other}{why}");
                // Before anything was given up, it is told that somebody owns it, of whom it cannot tell whether he lives.
                if unchanged {
                    assert_eq!(other, "acquire done -241\n", "{operation}, killed at call {call}: {why}");
                    still_held.set(still_held.get() + 1);
                }
                if other.contains(" done 0\n") {
                    scratch.ok(&format!("release -r {resource} -i 2 -g 1"));
                }
                scratch.ok(&format!("acquire -r {resource} -i 1 -g 8"));
                scratch.ok(&format!("release -r {resource} -i 1 -g 8"));
                scratch.ok(&format!("acquire -r {resource} -i 2 -g 2"));
            });
            assert!(killed >= 3, "{operation}: {killed}");
            assert!(
                *operation == take || still_held.get() >= 1,
                "{operation}: never killed before its first write"
            );
        }
    }
}

/// A release that was to rename a lease on two disks reached one of them: nobody gets it by either name. Once the other one is written
/// likewise, everybody does (docs/guide/failure.md).
#[test]
fn a_rename_that_reached_half_of_the_disks_is_ended_by_hand() {
    let scratch = Scratch::new();
    scratch.put(&vec![vec![0; 4 * MIB]; 3]);
    let lease = |name: &str| format!("LS:{name}:@a:1M:@b:1M");
    scratch.ok(&format!("init -r {} -n 8", lease("R")));
    scratch.ok(&format!("acquire -r {} -i 1 -g 7", lease("R")));
    std::fs::write(scratch.path("freed"), "resource_name NEW\ntimestamp 0\n").unwrap();
    let freed = scratch.path("freed").display().to_string();
    scratch.ok(&format!("write_leader -r LS:R:@b:1M -F {freed}"));
    let half = scratch.get();
    for name in ["R", "NEW"] {
        let (refused, why) = scratch.run(&format!("acquire -r {} -i 2 -g 1", lease(name)));
        assert!(!refused.contains(" done 0\n"), "{name}: {refused}{why}");
        assert!(scratch.get() == half, "{name}: a refused attempt wrote");
    }
    scratch.ok(&format!("write_leader -r LS:R:@a:1M -F {freed}"));
    for id in [2, 1] {
        scratch.ok(&format!("acquire -r {} -i {id} -g 8", lease("NEW")));
        scratch.ok(&format!("release -r {} -i {id} -g 8", lease("NEW")));
    }
}

/// The record is the old one or the new one.
#[test]
fn a_leader_is_written_or_not() {
    if !strace() {
        return;
    }
    let scratch = Scratch::new();
    scratch.put(&vec![vec![0; 4 * MIB]; 3]);
    scratch.ok("init -s LS:0:@a:0 -o 1");
    scratch.ok("init -r LS:R:@a:1M -n 8");
    std::fs::write(scratch.path("values"), "lver 8\n").unwrap();
    let (contents, values) = (scratch.get(), scratch.path("values").to_str().unwrap().to_owned());
    for target in ["-s LS:2:@a:0", "-r LS:R:@a:1M"] {
        let killed = everywhere(&scratch, &contents, &format!("write_leader {target} -F {values}"), |call| {
            let (found, why) = scratch.run(&format!("read_leader {target}"));
            assert!(found.contains(" done 0\n"), "killed at call {call}: {found}{why}");
            assert!(found.contains("\nlver 0\n") || found.contains("\nlver 8\n"), "{found}");
        });
        assert!(killed >= 1);
    }
}

/// Renewing or leaving is cut short, and the host id can be taken, renewed and left again.
#[test]
fn a_host_id_is_renewed_or_left_or_as_before() {
    if !strace() {
        return;
    }
    let scratch = Scratch::new();
    scratch.put(&vec![vec![0; 4 * MIB]; 3]);
    scratch.ok("init -s LS:0:@a:0 -o 1");
    let free = scratch.get();
    scratch.ok("acquire_id -s LS:2:@a:0 -e host -o 1");
    let held = scratch.get();
    let owned = |found: &str| found.contains("\nowner_generation 1\n");
    for (contents, operation) in [
        (&free, "acquire_id -s LS:2:@a:0 -e host -o 1"),
        (&held, "renew_id -s LS:2:@a:0 -e host -o 1"),
        (&held, "release_id -s LS:2:@a:0 -e host -o 1"),
    ] {
        let killed = everywhere(&scratch, contents, operation, |call| {
            let (found, why) = scratch.run("read_leader -s LS:2:@a:0");
            assert!(found.contains(" done 0\n"), "{operation}, killed at call {call}: {found}{why}");
            if operation.starts_with("acquire") && !owned(&found) {
                return;
            }
            assert!(owned(&found), "{operation}, killed at call {call}: {found}");
            scratch.ok("release_id -s LS:2:@a:0 -e host -o 1");
            let (found, _) = scratch.run("read_leader -s LS:2:@a:0");
            assert!(found.contains("\ntimestamp 0\n"), "{found}");
        });
        assert!(killed >= 2, "{operation}: {killed}");
    }
}

/// Every disk is opened so that a write completes once it would survive a power failure, and that every write goes past the page cache.
#[test]
fn every_disk_is_opened_direct_and_synchronous() {
    if !strace() {
        return;
    }
    let scratch = Scratch::new();
    scratch.put(&vec![vec![0; 4 * MIB]; 3]);
    for args in [
        "init -s LS:0:@a:0 -o 1",
        "init -r LS:R:@a:1M:@b:1M -n 8",
        "acquire -r LS:R:@a:1M:@b:1M -i 1 -g 1",
        "format -x LS:@c:0",
        "acquire_id -s LS:2:@a:0 -e host -o 1",
    ] {
        let done = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=open,openat,openat2", "-o"])
            .arg(scratch.path("trace"))
            .arg(env!("CARGO_BIN_EXE_sanlock"))
            .arg("direct")
            .args(scratch.args(args))
            .output()
            .unwrap();
        assert!(done.status.success(), "{args}: {done:?}");
        let trace = std::fs::read_to_string(scratch.path("trace")).unwrap();
        let disks: Vec<String> =
            ["a", "b", "c"].map(|disk| format!("{}\"", scratch.path(disk).display())).into();
        let opens = trace
            .lines()
            .filter(|line| disks.iter().any(|disk| line.contains(disk)) && line.contains("O_RDWR"));
        let mut count = 0;
        for open in opens {
            assert!(open.contains("O_SYNC") && open.contains("O_DIRECT"), "{open}");
            count += 1;
        }
        assert!(count > 0, "{args}: {trace}");
    }
}
