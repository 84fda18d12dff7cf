//! What is repaired, when nothing is, and what repairs leave behind.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::daemon::Daemon;

/// The original, as packaged.
const ORIGINAL: &str = "/usr/sbin/sanlock";

#[test]
fn with_every_host_gone_everything_is_repaired_at_once_and_what_was_there_is_saved() {
    let disk = Disk::formatted();
    // Used and given back, so that there is something to be kept.
    disk.direct(&["acquire", "-r", "LS:R1:DISK:1M", "-i", "3", "-g", "5"]);
    disk.direct(&["release", "-r", "LS:R1:DISK:1M", "-i", "3", "-g", "5"]);
    disk.held(3, 5, 0);
    disk.poke(block(3) + 16, &[9]);
    disk.poke(MIB + 512, &[0]);
    disk.write_leader(&["-r", "LS:R2:DISK:2M"], "num_hosts 5000\n");
    let damaged = disk.bytes();
    let text = disk.expect(
        &["DISK", "--repair"],
        REPAIRED,
        &[
            "repaired DISK:1048576: the ballot record of host id 3",
            "the request record",
            "checked again: nothing is wrong",
        ],
    );
    assert!(text.contains("saved in sanlock-fsck-"), "{text}");
    assert_eq!(disk.saved().len(), 1);
    disk.untouched(&["DISK"], CLEAN, &["version 1, free"]);
    // Sector by sector what was there can be put back.
    for line in std::fs::read_to_string(&disk.saved()[0]).unwrap().lines().filter(|l| !l.starts_with('#')) {
        let fields: Vec<&str> = line.splitn(4, ' ').collect();
        let bytes: Vec<u8> = (0..fields[2].len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&fields[2][i..i + 2], 16).unwrap())
            .collect();
        assert_eq!((bytes.len().to_string().as_str(), fields[3]), (fields[1], disk.path.to_str().unwrap()));
        disk.poke(fields[0].parse().unwrap(), &bytes);
    }
    assert!(disk.bytes() == damaged);
}

/// Its answer is in its memory: when none comes, nobody can tell what it uses.
#[test]
fn a_daemon_that_does_not_answer_is_not_waited_for_without_limit() {
    let disk = Disk::formatted();
    disk.poke(MIB + 512, &[0]);
    let _silent = std::os::unix::net::UnixListener::bind(disk.dir.path().join("sanlock.sock")).unwrap();
    let before = disk.bytes();
    let mut command = sanlock();
    command.args(["fsck", "--repair", "--no-wait"]).arg(&disk.path);
    let output = command.env("SANLOCK_RUN_DIR", disk.dir.path()).output().unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(REFUSED), "{text}");
    assert!(text.contains("whether it uses the lockspace: the daemon does not answer\n"), "{text}");
    assert!(disk.bytes() == before, "{text}");
}

#[test]
fn what_cannot_be_repaired_safely_stays() {
    let disk = Disk::formatted();
    disk.poke(2 * MIB + 48, &[9]);
    disk.poke(512, &[0; 512]);
    disk.expect(
        &["DISK", "--repair", "--no-wait"],
        REFUSED,
        &["1 host id(s) may be in use", "s their hosts are dead"],
    );
    disk.expect(
        &["DISK", "--repair", "--io-timeout", "1", "--fire-timeout", "4"],
        DAMAGED,
        &["waiting up to 13 s", "host id 2 becomes free", "checked again: 1 damaged place(s) left"],
    );
    disk.untouched(&["DISK"], DAMAGED, &["leader-checksum", "1 damaged place(s)"]);
    disk.untouched(&["DISK", "--repair"], DAMAGED, &["leader-checksum"]);
}

#[test]
fn a_host_that_may_be_alive_keeps_every_repair_from_its_leases() {
    let disk = Disk::formatted();
    disk.held(3, 5, 7);
    disk.direct(&["acquire", "-r", "LS:R1:DISK:1M", "-i", "3", "-g", "5"]);
    for damage in [block(3) + 16, block(9), MIB + 512] {
        let was = disk.bytes()[damage];
        disk.poke(damage, &[was ^ 0x55]);
        disk.untouched(&["DISK", "--repair", "--no-wait"], REFUSED, &["1 host id(s) may be in use"]);
        disk.poke(damage, &[was]);
    }
    // A damaged host id of somebody else is no reason to touch the rest, nor the other way round.
    disk.poke(512 * 8, &[0; 512]);
    disk.poke(MIB + 512, &[0]);
    disk.untouched(&["DISK", "--repair", "--no-wait"], REFUSED, &["may be in use"]);
}

#[test]
fn a_free_host_id_of_an_older_generation_than_an_owner_is_no_proof_that_it_is_gone() {
    let disk = Disk::formatted();
    disk.held(3, 4, 0);
    disk.direct(&["acquire", "-r", "LS:R1:DISK:1M", "-i", "3", "-g", "5"]);
    disk.poke(MIB + 512, &[0]);
    disk.untouched(&["DISK", "--repair", "--no-wait"], REFUSED, &["1 host id(s) may be in use"]);
}

#[test]
fn a_host_that_renews_while_it_is_waited_for_ends_the_repair() {
    let disk = Disk::formatted();
    disk.held(3, 5, 7);
    disk.poke(MIB + 512, &[0]);
    let before = disk.bytes()[MIB..].to_vec();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for timestamp in 8.. {
                disk.held(3, 5, timestamp);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        let args = ["DISK", "--repair", "--io-timeout", "1", "--fire-timeout", "4"];
        let text = disk.expect(&args, REFUSED, &["host id 3 is in use: its record has just changed"]);
        stop.store(true, Ordering::Relaxed);
        assert!(!text.contains("\nrepaired "), "{text}");
    });
    assert!(disk.bytes()[MIB..] == before);
}

#[test]
fn a_silent_host_is_waited_for_and_its_leases_are_repaired_then() {
    let disk = Disk::formatted();
    disk.held(3, 5, 7);
    disk.direct(&["acquire", "-r", "LS:R1:DISK:1M", "-i", "3", "-g", "5"]);
    disk.poke(MIB + 512, &[0]);
    let began = Instant::now();
    disk.expect(&["DISK", "--repair", "--fire-timeout", "4"], REPAIRED, &["1 host id(s) may be in use"]);
    assert!(began.elapsed() > Duration::from_secs(12), "8 x 1 + 4 seconds, and not the same second");
    disk.untouched(&["DISK"], CLEAN, &["owned by host id 3, generation 5"]);
}

/// By a shorter one, hosts pass for dead whose watchdog still gives their processes time.
#[test]
fn the_fire_timeout_is_that_of_the_configuration() {
    let disk = Disk::formatted();
    disk.held(3, 5, 7);
    disk.poke(MIB + 512, &[0]);
    let etc = disk.dir.path().join("etc/sanlock");
    std::fs::create_dir_all(&etc).unwrap();
    std::fs::write(etc.join("sanlock.conf"), "watchdog_fire_timeout = 300\n").unwrap();
    let left = |args: &[&str]| {
        let output = with_etc(&disk)
            .args(["fsck", "--repair", "--no-wait"])
            .args(args)
            .arg(&disk.path)
            .env("SANLOCK_RUN_DIR", "/nonexistent")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(REFUSED));
        text(&output)
    };
    let text = left(&[]);
    assert!(text.contains("with a watchdog fire timeout of 300 s"), "{text}");
    assert!((300..=309).any(|s| text.contains(&format!("silent for {s} s"))), "{text}");
    let text = left(&["--fire-timeout", "4"]);
    assert!((4..=13).any(|s| text.contains(&format!("silent for {s} s"))), "{text}");
}

/// Our program with the scratch directory's `etc` in place of the system's.
fn with_etc(disk: &Disk) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc && exec \"$@\""])
        .arg(disk.dir.path().join("etc"))
        .arg(env!("CARGO_BIN_EXE_sanlock"));
    command
}

/// What stands in it is not known then, and 60 s may be far too short.
#[test]
fn without_a_configuration_that_can_be_read_nobody_passes_for_dead() {
    const WHY: &str = "/etc/sanlock/sanlock.conf cannot be read: ";
    let disk = Disk::formatted();
    disk.held(3, 5, 7);
    disk.poke(MIB + 512, &[0]);
    // Root can read any file, but no loop of links.
    std::fs::create_dir_all(disk.dir.path().join("etc/sanlock")).unwrap();
    std::os::unix::fs::symlink("sanlock.conf", disk.dir.path().join("etc/sanlock/sanlock.conf")).unwrap();
    let run = |args: &[&str]| {
        let mut command = with_etc(&disk);
        command.args(args).env("SANLOCK_RUN_DIR", "/nonexistent").output().unwrap()
    };
    let (path, before) = (disk.path.to_str().unwrap(), disk.bytes());
    let repair = run(&["fsck", "--repair", path]);
    assert_eq!(repair.status.code(), Some(REFUSED));
    assert!(
        text(&repair).contains(WHY) && text(&repair).contains("give --fire-timeout"),
        "{}",
        text(&repair)
    );
    let join = run(&["direct", "acquire_id", "-s", &format!("LS:3:{path}:0"), "-e", "hostB"]);
    assert_eq!(join.status.code(), Some(1));
    assert!(text(&join).contains("acquire_id done -1\n") && text(&join).contains(WHY), "{}", text(&join));
    assert!(disk.bytes() == before);
    // Only told of, it is guessed, and said to be.
    let who = text(&run(&["who", path]));
    assert!(who.contains(WHY) && who.contains("a watchdog fire timeout of 60 s is assumed"), "{who}");
}

#[test]
fn without_its_lockspace_nothing_of_a_lease_is_repaired() {
    let disk = Disk::formatted();
    disk.poke(MIB + 512, &[0]);
    disk.untouched(&["DISK:1M", "--repair"], REFUSED, &["DISK:1048576", "--lockspace PATH:OFFSET"]);
    // Two of one name: nobody knows which one the hosts renew in.
    let copy = disk.dir.path().join("copy");
    std::fs::copy(&disk.path, &copy).unwrap();
    let copied = format!("{}:0:1M", copy.to_str().unwrap());
    disk.untouched(&["DISK", &copied, "--repair"], REFUSED, &["two of this name"]);
    disk.expect(&["DISK:1M", "--lockspace", "DISK", "--repair"], REPAIRED, &[]);
}

#[test]
fn an_area_that_is_named_twice_is_one_area() {
    let disk = Disk::formatted();
    let once = disk.expect(&["DISK"], CLEAN, &[]);
    let link = disk.dir.path().join("link");
    std::os::unix::fs::symlink(&disk.path, &link).unwrap();
    let link = link.to_str().unwrap();
    assert_eq!(disk.expect(&["DISK", &format!("{link}:1M"), "--lockspace", "DISK"], CLEAN, &[]), once);
    disk.poke(MIB + 512, &[0]);
    disk.untouched(&["DISK", link], DAMAGED, &["1 damaged place(s)"]);
    disk.expect(&[link, "--lockspace", "DISK", "--repair"], REPAIRED, &["checked again: nothing is wrong"]);
}

#[test]
fn where_silence_is_no_proof_of_death_nothing_is_repaired() {
    let disk = Disk::formatted();
    disk.write_leader(&["-s", "LS:5:DISK:0"], "flags 0x12\n");
    disk.poke(MIB + 512, &[0]);
    disk.untouched(&["DISK", "--repair"], REFUSED, &["a silent host need not be dead"]);
}

#[test]
fn nothing_is_written_where_what_is_overwritten_cannot_be_saved() {
    let disk = Disk::formatted();
    disk.poke(MIB + 512, &[0]);
    let there = disk.dir.path().join("there");
    std::fs::write(&there, "precious").unwrap();
    let there = there.to_str().unwrap();
    disk.untouched(&["DISK", "--repair", "--save", there], UNUSABLE, &[there, "nothing more was written"]);
    assert_eq!(std::fs::read(there).unwrap(), b"precious");
    disk.untouched(&["DISK", "--repair", "--save", "/nonexistent/x"], UNUSABLE, &["/nonexistent/x"]);
    disk.expect(&["DISK", "--repair", "--save", "kept"], REPAIRED, &["saved in kept"]);
    assert!(disk.dir.path().join("kept").exists());
}

#[test]
fn a_lockspace_that_the_daemon_of_this_host_has_joined_is_not_repaired() {
    let disk = Disk::formatted();
    disk.poke(MIB + 512, &[0]);
    let daemon = Daemon::start(disk.dir.path());
    let fsck = |status, word: &str| {
        let mut command = sanlock();
        command.args(["fsck", "--repair", disk.path.to_str().unwrap()]).current_dir(disk.dir.path());
        let output = command.env("SANLOCK_RUN_DIR", &daemon.run_dir).output().unwrap();
        let text = text(&output);
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(text.contains(word), "{text}");
    };
    let joined = daemon.client(&["add_lockspace", "-s", &disk.named("LS:4:DISK:0"), "-o", "1"]);
    assert!(joined.status.success(), "{}", text(&joined));
    let before = disk.bytes()[MIB..].to_vec();
    fsck(REFUSED, "the daemon on this host has joined it");
    assert!(disk.bytes()[MIB..] == before);
    let left = daemon.client(&["rem_lockspace", "-s", &disk.named("LS:4:DISK:0")]);
    assert!(left.status.success(), "{}", text(&left));
    fsck(REPAIRED, "checked again: nothing is wrong any more");
}

#[test]
fn the_original_accepts_what_was_repaired() {
    if !Path::new(ORIGINAL).exists() {
        assert!(std::env::var_os("CI").is_none(), "{ORIGINAL} is missing, and CI must not skip");
        eprintln!("skipped: {ORIGINAL} is missing");
        return;
    }
    let disk = Disk::formatted();
    disk.direct(&["acquire", "-r", "LS:R1:DISK:1M", "-i", "3", "-g", "5"]);
    disk.direct(&["release", "-r", "LS:R1:DISK:1M", "-i", "3", "-g", "5"]);
    disk.held(3, 5, 0);
    let original = |args: &[&str]| {
        let args = args.iter().map(|a| disk.named(a));
        text(&Command::new(ORIGINAL).arg("direct").args(args).output().unwrap())
    };
    disk.poke(block(9), &[0xa5; 56]);
    let refused = original(&["acquire", "-r", "LS:R1:DISK:1M", "-i", "4", "-g", "1"]);
    assert!(refused.contains("acquire done -214"), "{refused}");
    disk.write_leader(&["-r", "LS:R2:DISK:2M"], "owner_id 3000\ntimestamp 9\n");
    // The record of host id 4 is damaged.
    disk.poke(3 * 512 + 32, &[7]);
    let refused = original(&["acquire_id", "-s", "LS:4:DISK:0", "-e", "here", "-o", "1"]);
    assert!(refused.contains("acquire_id done -"), "{refused}");
    disk.expect(&["DISK", "--repair", "--io-timeout", "1", "--fire-timeout", "4"], REPAIRED, &[]);
    let dump = original(&["dump", "DISK", "-f", "2"]);
    assert!(dump.contains("LS") && dump.contains("R1") && dump.contains("R2"), "{dump}");
    let done = original(&["acquire_id", "-s", "LS:4:DISK:0", "-e", "here", "-o", "1"]);
    assert!(done.contains("acquire_id done 0"), "{done}");
    for resource in ["LS:R1:DISK:1M", "LS:R2:DISK:2M"] {
        let done = original(&["acquire", "-r", resource, "-i", "4", "-g", "1"]);
        assert!(done.contains("acquire done 0"), "{resource}: {done}");
        disk.direct(&["release", "-r", resource, "-i", "4", "-g", "1"]);
        disk.direct(&["acquire", "-r", resource, "-i", "5", "-g", "1"]);
        disk.direct(&["release", "-r", resource, "-i", "5", "-g", "1"]);
        let done = original(&["acquire", "-r", resource, "-i", "4", "-g", "1"]);
        assert!(done.contains("acquire done 0"), "{resource}: {done}");
    }
}

#[test]
fn an_index_and_its_leases_are_brought_together_again() {
    let disk = Disk::of_size(8 << 20);
    disk.direct(&["init", "-s", "LS:0:DISK:0", "-o", "1"]);
    disk.direct(&["format", "-x", "LS:DISK:1M"]);
    disk.direct(&["init", "-r", "LS:A:DISK:3M"]);
    disk.direct(&["init", "-r", "LS:B:DISK:4M"]);
    disk.direct(&["update", "-x", "LS:DISK:1M", "-e", "A:3M"]);
    // B has no entry, and A a wrong name.
    disk.untouched(&["DISK"], DAMAGED, &["DAMAGE entry-missing", "the next create formats this place"]);
    disk.poke(MIB + 512 + 16, b"X");
    disk.untouched(&["DISK"], DAMAGED, &["DAMAGE entry-name", "2 damaged place(s)"]);
    disk.expect(
        &["DISK", "--repair"],
        REPAIRED,
        &["the lease is entered as \"A\"", "the lease is entered as \"B\""],
    );
    disk.untouched(&["DISK"], CLEAN, &["2 of 4096 entries used"]);
    disk.direct(&["lookup", "-x", "LS:DISK:1M", "-e", "B:4M"]);
    // Without its header an index is known by its internal lease.
    disk.poke(MIB, &[0; 512]);
    disk.untouched(
        &["DISK"],
        DAMAGED,
        &["DAMAGE index-magic: DISK at byte 1048576", "its header is unusable"],
    );
    disk.untouched(&["DISK", "--repair"], DAMAGED, &["index-magic"]);
}

#[test]
fn sectors_of_4096_bytes() {
    let disk = Disk::of_size(6 << 20);
    let sizes = ["-Z", "4096", "-A", "2M"];
    disk.direct(&[&["init", "-s", "LS:0:DISK:0"], &sizes[..]].concat());
    disk.direct(&[&["init", "-r", "LS:R1:DISK:2M"], &sizes[..]].concat());
    disk.direct(&[&["init", "-r", "LS:R2:DISK:4M"], &sizes[..]].concat());
    disk.untouched(&["DISK"], CLEAN, &["DISK:0  lockspace \"LS\", 4096/2M", "3 area(s)"]);
    disk.poke(2 * MIB + 4 * 4096, &[7; 56]);
    disk.untouched(&["DISK"], DAMAGED, &["(sector 4 of the area at 2097152)", "host id 3"]);
    disk.expect(&["DISK", "--repair"], REPAIRED, &[]);
    // Neither first record says the sizes now, and what follows is found all the same.
    disk.poke(0, &[0; 512]);
    disk.poke(2 * MIB, &[0; 512]);
    disk.untouched(
        &["DISK"],
        DAMAGED,
        &["host-id-magic", "leader-magic", "resource \"R2\"", "2 damaged place(s)"],
    );
}

/// Bytes of the larger areas.
const LARGE: &str = "8M";

#[test]
fn nothing_is_repaired_where_another_lockspace_s_lease_lies_inside_an_area() {
    let disk = Disk::of_size(24 << 20);
    disk.direct(&["init", "-s", "L1:0:DISK:0", "-Z", "4096", "-A", LARGE, "-o", "1"]);
    disk.direct(&["init", "-r", "L1:A:DISK:8M", "-Z", "4096", "-A", LARGE]);
    disk.direct(&["init", "-r", "L2:B:DISK:9M", "-Z", "4096", "-A", "1M"]);
    disk.direct(&["acquire", "-r", "L2:B:DISK:9M", "-i", "7", "-g", "4"]);
    let text = disk.untouched(
        &["--repair", "DISK"],
        DAMAGED,
        &[
            "DISK:8388608: nothing is repaired in this area",
            "byte 1048576 of it",
            "offset 9437184",
            "two areas overlap",
        ],
    );
    assert!(!text.contains("repair: "), "{text}");
}

#[test]
fn nothing_is_repaired_at_an_offset_where_a_lockspace_does_not_begin() {
    let disk = Disk::of_size(24 << 20);
    disk.direct(&["init", "-s", "L1:0:DISK:0", "-Z", "4096", "-A", LARGE, "-o", "1"]);
    disk.direct(&["init", "-r", "L1:R:DISK:8M", "-Z", "4096", "-A", LARGE]);
    disk.direct(&["acquire", "-r", "L1:R:DISK:8M", "-i", "3", "-g", "1"]);
    for offset in ["1M", "2M", "3M"] {
        let place = format!("DISK:{offset}:8M");
        disk.untouched(
            &["--repair", &place],
            DAMAGED,
            &["the area at 0 reaches into it", "this offset is wrong"],
        );
    }

    // Nor does such a place vouch for leases behind it, whose hosts renew elsewhere.
    let disk = Disk::of_size(24 << 20);
    disk.direct(&["init", "-s", "L1:0:DISK:0", "-Z", "4096", "-A", "4M", "-o", "1"]);
    disk.direct(&["init", "-r", "L1:R:DISK:8M", "-Z", "4096", "-A", "4M"]);
    disk.direct(&["acquire", "-r", "L1:R:DISK:8M", "-i", "3", "-g", "1"]);
    disk.poke((8 << 20) + 9 * 4096, &[7; 512]);
    disk.untouched(
        &["--repair", "--no-wait", "DISK:1M"],
        REFUSED,
        &["may not be what it seems", "the area at 0 reaches into it"],
    );

    // Where it does begin there is no doubt, only somebody to be waited for.
    let disk = Disk::of_size(16 << 20);
    disk.direct(&["init", "-s", "L1:0:DISK:0", "-Z", "4096", "-A", LARGE, "-o", "1"]);
    disk.poke(5 << 20, &[7; 512]);
    let text = disk.untouched(&["--repair", "--no-wait", "DISK"], REFUSED, &["host id 1281 becomes free"]);
    assert!(!text.contains("nothing is repaired"), "{text}");
}

#[test]
fn nothing_is_repaired_where_a_resource_lies_inside_a_lockspace() {
    let disk = Disk::of_size(24 << 20);
    disk.direct(&["init", "-s", "L1:0:DISK:0", "-Z", "4096", "-A", LARGE, "-o", "1"]);
    disk.direct(&["init", "-r", "L1:R:DISK:1M", "-Z", "4096", "-A", "1M"]);
    disk.direct(&["acquire", "-r", "L1:R:DISK:1M", "-i", "3", "-g", "1"]);
    disk.untouched(
        &["--repair", "DISK"],
        DAMAGED,
        &["DISK:0: nothing is repaired in this area", "byte 1048576 of it", "two areas overlap"],
    );
}

/// Beyond the end of the storage there is nothing that could be repaired, and nothing is said to have been.
#[test]
fn nothing_is_repaired_in_what_is_not_there() {
    let disk = Disk::formatted();
    let file = std::fs::File::options().write(true).open(&disk.path).unwrap();
    let end = std::fs::metadata(&disk.path).unwrap().len();
    file.set_len(2 * MIB as u64 + 1000).unwrap();
    assert!(end > 3 * MIB as u64);
    let before = disk.bytes();
    let text = disk.expect(&["DISK", "--repair"], DAMAGED, &["DAMAGE area-short"]);
    assert!(!text.contains("request-magic") && !text.contains("repaired"), "{text}");
    assert!(disk.bytes() == before && disk.saved().is_empty());
}
