//! `kill -9` of `sanlock fsck --repair` before every one of its writes, and of the commands that change a resource index without the
//! daemon at every I/O call: what was good stays, what is left can be used, and the same command ends it.
//!
//! Needs strace, as `crash_direct.rs` does.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod killed;

use killed::{IO, Scratch, everywhere, strace, text};
use std::path::PathBuf;

const MIB: usize = 1 << 20;
/// Exit statuses of `sanlock fsck`.
const CLEAN: i32 = 0;
const DAMAGED: i32 = 1;
const REPAIRED: i32 = 2;
/// What is to be overwritten is on stable storage with this call of the thread that repairs, right before each write.
const SAVED: &str = "fdatasync";

/// A lockspace that nobody is in, two leases that were used and an index with two.
fn scene(scratch: &Scratch) -> Vec<u8> {
    scratch.put(&[vec![0; 10 * MIB]]);
    scratch.ok("init -s LS:0:@a:0 -o 1");
    for resource in ["LS:R1:@a:1M", "LS:R2:@a:2M"] {
        scratch.ok(&format!("init -r {resource}"));
        for (id, generation) in [(3, 1), (4, 1)] {
            scratch.ok(&format!("acquire -r {resource} -i {id} -g {generation}"));
            scratch.ok(&format!("release -r {resource} -i {id} -g {generation}"));
        }
    }
    scratch.ok("format -x LS:@a:4M");
    for (name, offset) in [("A", "6M"), ("B", "7M"), ("C", "8M")] {
        scratch.ok(&format!("init -r LS:{name}:@a:{offset}"));
        scratch.ok(&format!("update -x LS:@a:4M -e {name}:{offset}"));
    }
    for id in [3, 4] {
        scratch.ok(&format!("acquire_id -s LS:{id}:@a:0 -e host{id} -o 1"));
        scratch.ok(&format!("release_id -s LS:{id}:@a:0 -e host{id} -o 1"));
    }
    scratch.get().remove(0)
}

/// Damage to a lease: its request, the ballots of two hosts, one of which took part.
fn damage_lease(disk: &mut [u8]) {
    disk[MIB + 512] ^= 0xff;
    disk[MIB + 4 * 512 + 16] ^= 1;
    disk[MIB + 9 * 512..][..56].fill(0xa5);
}

/// Damage to the index: one entry is gone, another one has a wrong name.
fn damage_index(disk: &mut [u8]) {
    disk[4 * MIB + 512..][..64].fill(0);
    disk[4 * MIB + 512 + 64 + 16] = b'X';
}

/// Damage to the records of two host ids, one of which joined before.
fn damage_hosts(disk: &mut [u8]) {
    disk[2 * 512 + 56] ^= 1;
    disk[6 * 512..7 * 512].fill(0);
}

fn fsck(scratch: &Scratch, args: &str, expected: &[i32]) -> String {
    let output = scratch.output(&format!("fsck @a{args}"));
    let text = text(&output.stdout) + &text(&output.stderr);
    assert!(expected.contains(&output.status.code().unwrap()), "{:?}: {text}", output.status);
    text
}

/// The kinds and places of what is found.
fn found(scratch: &Scratch, expected: &[i32]) -> Vec<String> {
    let text = fsck(scratch, "", expected).replace(scratch.path("a").to_str().unwrap(), "disk");
    text.lines().filter(|line| line.starts_with("DAMAGE ")).map(str::to_owned).collect()
}

/// The files for what is overwritten, in the order in which they were made.
const SAVES: [&str; 2] = ["first.saved", "second.saved"];

/// Puts back what the saved files say, the last line first.
fn put_back(scratch: &Scratch) {
    let mut disk = scratch.get().remove(0);
    let files: Vec<PathBuf> = SAVES.iter().map(|name| scratch.path(name)).filter(|p| p.exists()).collect();
    let all: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for line in all.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().into_iter().rev() {
        let fields: Vec<&str> = line.splitn(4, ' ').collect();
        let (at, len): (usize, usize) = (fields[0].parse().unwrap(), fields[1].parse().unwrap());
        for (byte, digits) in disk[at..at + len].iter_mut().zip(fields[2].as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        }
    }
    scratch.put(&[disk]);
}

/// A disk with damage.
struct Damaged {
    disk: Vec<u8>,
    found: Vec<String>,
}

/// A repair of it that was killed.
struct Killed {
    /// What it left, and what the next repair made of that.
    left: Vec<u8>,
    end: Vec<u8>,
    was_killed: bool,
}

const REPAIR: &str = " --repair --io-timeout 1 --fire-timeout 4 --save";

impl Damaged {
    fn by(damages: &[fn(&mut [u8])]) -> Self {
        let scratch = Scratch::new();
        let mut disk = scene(&scratch);
        damages.iter().for_each(|damage| damage(&mut disk));
        scratch.put(std::slice::from_ref(&disk));
        Self { disk, found: found(&scratch, &[DAMAGED]) }
    }

    /// After a repair that nobody disturbs.
    fn whole(&self) -> Vec<u8> {
        let scratch = Scratch::new();
        scratch.put(std::slice::from_ref(&self.disk));
        fsck(&scratch, &format!("{REPAIR} whole.saved"), &[REPAIRED]);
        scratch.get().remove(0)
    }

    /// The repair is killed at the n-th of these calls, unless it ends before.
    fn killed_at(&self, calls: &str, n: u32) -> Killed {
        let scratch = Scratch::new();
        scratch.put(std::slice::from_ref(&self.disk));
        let [first, second] = SAVES;
        let was_killed = scratch.is_killed(calls, n, &format!("fsck @a{REPAIR} {first}"), REPAIRED);
        let what = format!("killed at {calls} {n}");
        let found = found(&scratch, &[CLEAN, DAMAGED]);
        assert!(found.iter().all(|one| self.found.contains(one)), "{what}: new damage: {found:?}");
        let left = scratch.get().remove(0);
        fsck(&scratch, &format!("{REPAIR} {second}"), &[CLEAN, REPAIRED]);
        let end = scratch.get().remove(0);
        put_back(&scratch);
        assert!(scratch.get()[0] == self.disk, "{what}: what was overwritten is not what was saved");
        Killed { left, end, was_killed }
    }

    /// A repair for each of these calls, side by side; which of them were killed.
    fn killed_at_each(&self, calls: &str, numbers: std::ops::RangeInclusive<u32>) -> Vec<bool> {
        let (whole, all) = std::thread::scope(|scope| {
            let whole = scope.spawn(|| self.whole());
            let cases: Vec<_> = numbers.map(|n| scope.spawn(move || self.killed_at(calls, n))).collect();
            let all: Vec<Killed> = cases.into_iter().map(|case| case.join().unwrap()).collect();
            (whole.join().unwrap(), all)
        });
        for (number, killed) in all.iter().enumerate() {
            // Block for block everything is as it was, or as it will be.
            let blocks = killed.left.chunks(512).zip(self.disk.chunks(512)).zip(whole.chunks(512));
            let odd = blocks.enumerate().find(|(_, ((left, old), new))| left != old && left != new);
            assert!(odd.is_none(), "{calls}, case {number}: block {:?}", odd.map(|(block, _)| block));
            assert!(killed.end == whole, "{calls}, case {number}: repaired again it is something else");
        }
        can_be_used(whole);
        all.into_iter().map(|killed| killed.was_killed).collect()
    }
}

fn can_be_used(disk: Vec<u8>) {
    let scratch = Scratch::new();
    scratch.put(&[disk]);
    for resource in ["LS:R1:@a:1M", "LS:R2:@a:2M", "LS:A:@a:6M"] {
        scratch.ok(&format!("acquire -r {resource} -i 4 -g 2"));
        scratch.ok(&format!("release -r {resource} -i 4 -g 2"));
    }
}

#[test]
fn a_repair_that_is_killed_before_any_write_is_ended_by_the_next_one() {
    if !strace() {
        return;
    }
    let damaged = Damaged::by(&[damage_lease, damage_index]);
    // Three sectors of the lease, one of the index.
    assert_eq!(damaged.killed_at_each(SAVED, 1..=5), [true, true, true, true, false]);
}

/// Host ids that cannot be believed are waited for, each time anew.
#[test]
fn so_is_one_of_host_ids() {
    if !strace() {
        return;
    }
    let damaged = Damaged::by(&[|disk| disk[MIB + 512] ^= 0xff, damage_hosts]);
    assert_eq!(damaged.killed_at_each(SAVED, 1..=4), [true, true, true, false]);
}

/// Reads too, of whichever thread gets to the n-th first.
#[test]
fn a_repair_can_be_killed_at_any_call() {
    if !strace() {
        return;
    }
    let all: Option<u32> = std::env::var("SANLOCK_CRASH_CALLS").ok().and_then(|n| n.parse().ok());
    let damaged = Damaged::by(&[damage_lease, damage_index]);
    let killed = damaged.killed_at_each(IO, 1..=all.unwrap_or(8));
    assert!(killed.iter().filter(|killed| **killed).count() >= 5, "{killed:?}");
}

/// The name of the file with what is overwritten has to be on stable storage, too, before anything is.
#[test]
fn the_file_for_what_is_overwritten_cannot_be_lost() {
    if !strace() {
        return;
    }
    let scratch = Scratch::new();
    let mut disk = scene(&scratch);
    damage_lease(&mut disk);
    scratch.put(std::slice::from_ref(&disk));
    assert!(scratch.is_killed("fsync", 1, "fsck @a --repair --save kept", REPAIRED));
    assert!(scratch.path("kept").exists() && scratch.get() == [disk]);
}

/// Interrupted, the index is the old one or the new one, and the same command ends it.
#[test]
fn an_index_is_changed_or_not() {
    if !strace() {
        return;
    }
    let scratch = Scratch::new();
    let disk = scene(&scratch);
    let mut lost = disk.clone();
    lost[4 * MIB + 512..][..64].fill(0);
    for (contents, change, at_least) in [
        (&lost, "update -x LS:@a:4M -e A:6M", 3),
        (&disk, "update -x LS:@a:4M -e A:6M -z 1", 3),
        (&lost, "rebuild -x LS:@a:4M", 5),
    ] {
        let contents = [contents.clone()];
        scratch.put(&contents);
        scratch.ok(change);
        let complete = scratch.get();
        let killed = everywhere(&scratch, &contents, change, |call| {
            let now = scratch.get();
            assert!(now == contents || now == complete, "{change}, killed at call {call}");
            let (found, why) = scratch.run("lookup -x LS:@a:4M -e B:7M");
            assert!(
                found.contains("name B offset 7340032\n"),
                "{change}, killed at call {call}: {found}{why}"
            );
            if now == contents || change.starts_with("rebuild") {
                scratch.ok(change);
            }
            assert!(scratch.get() == complete, "{change}, killed at call {call} and done again");
        });
        assert!(killed >= at_least, "{change}: {killed}");
    }
}
