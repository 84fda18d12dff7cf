//! `sanlock direct` taking, giving up and changing leases, where it does more or less than the original (docs/differences.md).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: usize = 1 << 20;
/// The leader's fields that these tests look at: offset and width in bytes.
const OWNER_ID: (usize, usize) = (32, 8);
const OWNER_GENERATION: (usize, usize) = (40, 8);
const LVER: (usize, usize) = (48, 8);
const VERSION: usize = 4;
const RESOURCE_NAME: usize = 104;
const TIMESTAMP: (usize, usize) = (152, 8);
/// The flags of a ballot record.
const BLOCK_FLAGS: (usize, usize) = (52, 4);

struct Disk {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Disk {
    /// A lockspace LS at 0 and a resource R at 1 MiB.
    fn formatted() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let disk = Self { _dir: dir, path };
        disk.ok(&["init", "-s", "LS:0:DISK:0", "-o", "1"]);
        disk.ok(&["init", "-r", "LS:R:DISK:1M"]);
        disk
    }

    /// Runs a direct action with `DISK` replaced by the path; stdout, stderr and exit status.
    fn run(&self, args: &[&str]) -> (String, String, Option<i32>) {
        let args = args.iter().map(|arg| arg.replace("DISK", self.path.to_str().unwrap()));
        let output = Command::new(env!("CARGO_BIN_EXE_sanlock")).arg("direct").args(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) {
        let (stdout, stderr, status) = self.run(args);
        assert_eq!((stdout, status), (format!("{} done 0\n", args[0]), Some(0)), "{stderr}");
    }

    /// The action fails with `result` and its stderr contains `why`; nothing on the disk changes.
    #[track_caller]
    fn refused(&self, args: &[&str], result: i32, why: &str) {
        let before = self.bytes();
        let (stdout, stderr, status) = self.run(args);
        assert_eq!((stdout, status), (format!("{} done {result}\n", args[0]), Some(1)), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
        assert!(self.bytes() == before, "{args:?} wrote");
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    fn field(&self, record: usize, (at, len): (usize, usize)) -> u64 {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&self.bytes()[record + at..][..len]);
        u64::from_le_bytes(bytes)
    }

    fn leader(&self) -> [u64; 4] {
        [OWNER_ID, OWNER_GENERATION, LVER, TIMESTAMP].map(|field| self.field(MIB, field))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path.with_file_name(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn poke(&self, at: usize, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(bytes, at.try_into().unwrap()).unwrap();
    }
}

fn block(host: usize) -> usize {
    MIB + (host + 1) * 512
}

#[test]
fn release_frees_only_what_the_named_generation_owns() {
    let disk = Disk::formatted();
    disk.ok(&["acquire", "-r", "LS:R:DISK:1M", "-i", "3", "-g", "5"]);
    let held = disk.bytes();
    assert_eq!(disk.leader()[..3], [3, 5, 1]);
    for identity in [&[][..], &["-i", "1", "-g", "5"], &["-i", "3", "-g", "4"], &["-i", "3", "-g", "6"]] {
        let args = [&["release", "-r", "LS:R:DISK:1M"], identity].concat();
        let (stdout, stderr, status) = disk.run(&args);
        assert_eq!((stdout.as_str(), status), ("release done 0\n", Some(0)), "{stderr}");
        assert!(stderr.contains("nothing"), "{stderr}");
        assert!(disk.bytes() == held, "{identity:?}");
    }
    disk.ok(&["release", "-r", "LS:R:DISK:1M", "-i", "3", "-g", "5"]);
    assert_eq!(disk.leader(), [3, 5, 1, 0]);
    // The value of the ballot stays, marked as given up.
    let value = block(3)..block(3) + 48;
    assert_eq!(disk.bytes()[value.clone()], held[value]);
    assert_eq!(disk.field(block(3), BLOCK_FLAGS), 1);
    // Free for others now.
    disk.ok(&["acquire", "-r", "LS:R:DISK:1M", "-i", "2", "-g", "1"]);
    assert_eq!(disk.leader()[..3], [2, 1, 2]);
}

#[test]
fn a_shared_hold_is_in_the_way_and_can_be_released() {
    let disk = Disk::formatted();
    // Host 4 holds it shared with generation 7.
    disk.poke(block(4) + 128, &[1]);
    disk.poke(block(4) + 136, &[7]);
    let (stdout, stderr, _) = disk.run(&["acquire", "-r", "LS:R:DISK:1M", "-i", "1", "-g", "1"]);
    assert_eq!(stdout, "acquire done -241\n", "{stderr}");
    assert_eq!(disk.field(MIB, TIMESTAMP), 0);
    // Its own, of whichever generation: nothing else would tell of it any more.
    let before = disk.bytes();
    for generation in ["6", "7", "8"] {
        let (stdout, stderr, _) = disk.run(&["acquire", "-r", "LS:R:DISK:1M", "-i", "4", "-g", generation]);
        assert_eq!(stdout, "acquire done -11\n", "{stderr}");
        assert!(stderr.contains("host id 4 holds it shared with generation 7"), "{stderr}");
    }
    assert!(disk.bytes() == before, "nothing was written");
    disk.ok(&["release", "-r", "LS:R:DISK:1M", "-i", "4", "-g", "7"]);
    disk.ok(&["acquire", "-r", "LS:R:DISK:1M", "-i", "1", "-g", "1"]);
}

#[test]
fn acquire_needs_an_identity_and_respects_owner_version_and_sizes() {
    let disk = Disk::formatted();
    for identity in [&[][..], &["-i", "1"], &["-g", "1"], &["-i", "0", "-g", "1"], &["-i", "1", "-g", "0"]] {
        let args = [&["acquire", "-r", "LS:R:DISK:1M"], identity].concat();
        disk.refused(&args, -22, "-i");
    }
    disk.refused(&["acquire", "-i", "1", "-g", "1"], -22, "-r");
    disk.refused(&["release"], -22, "-r");
    disk.ok(&["acquire", "-r", "LS:R:DISK:1M", "-i", "3", "-g", "5"]);
    let acquire = |resource| ["acquire", "-r", resource, "-i", "3", "-g", "5"];
    disk.refused(&acquire("LS:R:DISK:1M:9"), -240, "lease version is 1");
    disk.refused(&["acquire", "-r", "LS:R:DISK:1M", "-i", "3", "-g", "4"], -241, "lives");
    disk.refused(&["acquire", "-r", "LS:R:DISK:1M", "-i", "2", "-g", "5"], -241, "host id 3 generation 5");
    disk.refused(&[&acquire("LS:R:DISK:1M")[..], &["-Z", "4096", "-A", "8M"]].concat(), -22, "512");
    disk.ok(&acquire("LS:R:DISK:1M:1"));
    assert_eq!(disk.leader()[..3], [3, 5, 2]);
}

#[test]
fn a_minority_of_the_disks_may_be_missing() {
    let disk = Disk::formatted();
    let second = disk.write("second", "");
    let resource = format!("LS:R:DISK:1M:{second}:0:/nonexistent/third:0");
    std::fs::copy(&disk.path, &second).unwrap();
    disk.ok(&["init", "-r", &format!("LS:R:DISK:1M:{second}:0")]);
    disk.ok(&["acquire", "-r", &resource, "-i", "1", "-g", "1"]);
    disk.ok(&["release", "-r", &resource, "-i", "1", "-g", "1"]);
    std::fs::remove_file(second).unwrap();
    disk.refused(&["acquire", "-r", &resource, "-i", "1", "-g", "1"], -2, "second");
}

#[test]
fn write_leader_writes_a_valid_record_and_nothing_else() {
    let disk = Disk::formatted();
    // A request and an event bit behind the two records.
    disk.poke(MIB + 300, &[7]);
    disk.poke(512 + 300, &[9]);
    let before = disk.bytes();
    let values = disk.write("values", "lver 8\nsector_size 4096\n");
    for (args, place, extra) in
        [(["-s", "LS:2:DISK:0"], 512, "extra3 0"), (["-r", "LS:R:DISK:1M"], MIB, "write_timestamp 0")]
    {
        let args = [&["write_leader", "-F", &values], &args[..]].concat();
        let (stdout, stderr, status) = disk.run(&args);
        assert_eq!((stderr.as_str(), status), ("", Some(0)));
        assert!(stdout.contains("\nwrite_leader done 0\nmagic "), "{stdout}");
        assert!(stdout.ends_with(&format!("{extra}\n")), "{stdout}");
        assert_eq!(disk.field(place, LVER), 8);
    }
    let after = disk.bytes();
    for (at, (old, new)) in before.iter().zip(&after).enumerate() {
        assert!(
            old == new || [512, MIB].iter().any(|place| (*place..place + 172).contains(&at)),
            "byte {at}"
        );
    }
    // Only a right checksum lets the lockspace's record be read.
    let back = disk.write("values", "sector_size 512\n");
    disk.run(&["write_leader", "-s", "LS:2:DISK:0", "-F", &back]);
    let (stdout, ..) = disk.run(&["read_leader", "-s", "LS:2:DISK:0"]);
    assert!(stdout.starts_with("read_leader done 0\n") && stdout.contains("\nlver 8\n"), "{stdout}");
}

#[test]
fn a_dump_as_an_object_has_the_areas_of_the_table() {
    let disk = Disk::formatted();
    disk.ok(&["init", "-r", "LS:S:DISK:2M"]);
    for (size, areas) in [("511", 2), ("512", 1), ("1049087", 1), ("1049088", 2), ("", 2)] {
        let place = format!("DISK:1M:{size}");
        let (table, ..) = disk.run(&["dump", &place]);
        let (object, ..) = disk.run(&["dump", &place, "--json"]);
        let shown = (table.lines().count() - 1, object.matches("\"num_hosts\":").count());
        assert_eq!(shown, (areas, areas), "{size}: {object}");
    }
}

/// As in the original, it says where the record of a host id lies.
#[test]
fn write_leader_goes_by_the_sector_size_of_the_file_where_the_disk_has_none() {
    let disk = Disk::formatted();
    for (size, place) in [(512, 2 * MIB + 2 * 512), (4096, 2 * MIB + 2 * 4096)] {
        let values = disk.write("values", &format!("magic 0x12212010\nlver 9\nsector_size {size}"));
        disk.run(&["write_leader", "-s", "LS:3:DISK:2M", "-F", &values]);
        assert_eq!((disk.field(place, LVER), disk.field(2 * MIB, LVER)), (9, 0), "{size}");
    }
    // What the disk says counts.
    let values = disk.write("values", "lver 9\nsector_size 4096\n");
    disk.run(&["write_leader", "-s", "LS:3:DISK:0", "-F", &values]);
    assert_eq!((disk.field(2 * 512, LVER), disk.field(2 * 4096, LVER)), (9, 0));
}

#[test]
fn write_leader_does_with_the_checksum_what_it_says() {
    let disk = Disk::formatted();
    let values = disk.write("values", "checksum 0xabc\nlver 2\n");
    for target in [["-s", "LS:2:DISK:0"], ["-r", "LS:R:DISK:1M"]] {
        let leader = |action, rest: &[&str]| disk.run(&[&[action], &target[..], rest].concat());
        let (stdout, ..) = leader("write_leader", &["-F", &values]);
        assert!(stdout.starts_with("use new generated checksum "), "{stdout}");
        assert!(leader("read_leader", &[]).0.starts_with("read_leader done 0\n"));
        let (stdout, ..) = leader("write_leader", &["-F", &values, "-f", "1"]);
        assert!(stdout.starts_with("warning: using specified checksum abc (generated is "), "{stdout}");
        assert!(stdout.contains("\nchecksum 0xabc\n"), "{stdout}");
        let (stdout, ..) = leader("read_leader", &[]);
        assert!(
            stdout.starts_with("read_leader done -229\n") && stdout.contains("checksum 0xabc"),
            "{stdout}"
        );
    }
}

#[test]
fn write_leader_refuses_what_it_does_not_understand() {
    let disk = Disk::formatted();
    for line in ["lver 0x20", "lver x", "magic 6152010", "io_timeout 70000"] {
        let values = disk.write("values", &format!("timestamp 5\n{line}\n"));
        disk.refused(&["write_leader", "-r", "LS:R:DISK:1M", "-F", &values], -22, "nothing was written");
    }
    let values = disk.write("values", "resource_name Q\n");
    let (_, stderr, status) = disk.run(&["write_leader", "-r", "LT:S:DISK:1M", "-F", &values]);
    assert_eq!(status, Some(0));
    assert!(stderr.contains("one of lockspace LS") && stderr.contains("one of resource R"), "{stderr}");
    let before = disk.bytes();
    let (stdout, _, status) = disk.run(&["write_leader", "-r", "LS:R:DISK:1M", "-F", "/"]);
    assert_eq!((stdout.as_str(), status), ("open error 21 /\n", Some(1)));
    let (stdout, stderr, _) = disk.run(&["write_leader", "-r", "LS:R:DISK:2M", "-F", &values]);
    assert!(stdout.ends_with("write_leader done -22\n") && stderr.contains("sector_size is 0"), "{stderr}");
    assert!(stderr.contains("names no lockspace\n") && stderr.contains("names no resource\n"), "{stderr}");
    assert!(disk.bytes() == before);
}

/// An empty name would be one that two hosts can have.
#[test]
fn an_empty_host_name_is_none() {
    let disk = Disk::formatted();
    disk.ok(&["acquire_id", "-s", "LS:1:DISK:0", "-e", "", "-o", "1"]);
    let name = &disk.bytes()[RESOURCE_NAME..][..48];
    // A UUID, a dot, the name of the machine.
    assert!(name[36] == b'.' && name[..36].iter().filter(|&&byte| byte == b'-').count() == 4, "{name:?}");
}

/// As in the original, the names of the last fields depend on `-r` alone, and what is read on `-s`.
#[test]
fn read_leader_names_its_fields_by_r() {
    let disk = Disk::formatted();
    for args in
        [&["-s", "LS:2:DISK:0", "-r", "LS:R:DISK:1M"][..], &["-r", "LS:R:DISK:1M", "-s", "LS:2:DISK:0"]]
    {
        let (stdout, stderr, status) = disk.run(&[&["read_leader"], args].concat());
        assert_eq!(status, Some(0), "{stderr}");
        assert!(stdout.contains("\nmagic 0x12212010\n") && stdout.contains("\nwrite_id 0\n"), "{stdout}");
    }
}

/// The first record of a lockspace has its sizes, and its magic says that it is one; whatever else is wrong with it is its own.
#[test]
fn a_damaged_first_record_does_not_hide_the_others() {
    let disk = Disk::formatted();
    disk.ok(&["acquire_id", "-s", "LS:2:DISK:0", "-e", "me", "-o", "1"]);
    disk.poke(VERSION, &[0, 0, 9, 0]);
    let read = |host: &str, action: &str| disk.run(&[action, "-s", &format!("LS:{host}:DISK:0")]).0;
    assert!(read("2", "read_leader").starts_with("read_leader done 0\n"));
    assert!(read("1", "read_leader").starts_with("read_leader done -224\n"));
    assert_eq!(read("2", "renew_id"), "rewew_id done 0\n");
    assert_eq!(read("2", "release_id"), "release_id done 0\n");
    // Without a magic the original says -1, but -223 where a resource begins, or a host id's own record has none.
    for (damaged, expected) in [(0, -1), (512, -223)] {
        let disk = Disk::formatted();
        disk.poke(damaged, &[0xff]);
        let (stdout, stderr, _) = disk.run(&["read_leader", "-s", "LS:2:DISK:0"]);
        assert!(stdout.starts_with(&format!("read_leader done {expected}\n")), "{damaged}: {stdout}{stderr}");
        assert_eq!(disk.run(&["renew_id", "-s", "LS:2:DISK:0"]).0, format!("rewew_id done {expected}\n"));
        assert_eq!(disk.run(&["acquire_id", "-s", "LS:2:DISK:0"]).0, format!("acquire_id done {expected}\n"));
    }
    for (place, expected) in [("DISK:2M", -1), ("DISK:1M", -223)] {
        for (action, line) in [
            ("read_leader", "read_leader"),
            ("renew_id", "rewew_id"),
            ("release_id", "release_id"),
            ("acquire_id", "acquire_id"),
        ] {
            let (stdout, stderr, _) = disk.run(&[action, "-s", &format!("LS:1:{place}")]);
            assert!(stdout.starts_with(&format!("{line} done {expected}\n")), "{place}: {stdout}");
            assert!(stderr.contains("no lease at this place") && stderr.contains("direct dump"), "{stderr}");
        }
    }
}

/// Its own lease of a version that this program does not write is no lease to renew or to free.
#[test]
fn host_ids_of_later_versions_are_left_alone() {
    let disk = Disk::formatted();
    let values = disk.write("values", "version 0x50000\nowner_id 1\nowner_generation 1\ntimestamp 5\n");
    disk.run(&["write_leader", "-s", "LS:1:DISK:0", "-F", &values]);
    for (action, line) in
        [("renew_id", "rewew_id"), ("release_id", "release_id"), ("acquire_id", "acquire_id")]
    {
        let before = disk.bytes();
        let (stdout, ..) = disk.run(&[action, "-s", "LS:1:DISK:0", "-o", "1"]);
        assert_eq!(stdout, format!("{line} done -224\n"));
        assert!(disk.bytes() == before);
    }
}

#[test]
fn a_path_that_is_not_there_is_told_of() {
    let disk = Disk { path: Path::new("/nonexistent/disk").to_owned(), ..Disk::formatted() };
    for (action, place, result) in [
        ("acquire", ["-r", "LS:R:DISK:0"], -2),
        ("release", ["-r", "LS:R:DISK:0"], -2),
        ("acquire_id", ["-s", "LS:1:DISK:0"], -19),
    ] {
        let (stdout, stderr, _) = disk.run(&[&[action, "-i", "1", "-g", "1"], &place[..]].concat());
        assert_eq!(stdout, format!("{action} done {result}\n"));
        assert!(stderr.contains("/nonexistent/disk"), "{stderr}");
    }
}

/// What is cut short leaves the old lease, or none, or the new one: no disk has the new one while another one still has the old.
#[test]
fn no_disk_gets_a_lease_before_the_old_one_is_gone_everywhere() {
    let disk = Disk::formatted();
    let other = disk.write("other", "");
    let before = disk.bytes();
    // No file has such a place: the first write to the second disk fails.
    let (stdout, stderr, status) =
        disk.run(&["init", "-r", &format!("LS:R:DISK:1M:{other}:4611686018427387904")]);
    assert!(stdout.starts_with("init done -") && status == Some(1), "{stdout} {stderr}");
    let left = disk.bytes();
    assert!(
        left[MIB..MIB + 512] == [0; 512]
            && left[..MIB] == before[..MIB]
            && left[MIB + 512..] == before[MIB + 512..]
    );
}

/// The original's renew_id refuses it so, too.
#[test]
fn a_host_id_record_of_another_host_is_neither_renewed_nor_released() {
    let disk = Disk::formatted();
    disk.ok(&["acquire_id", "-s", "LS:2:DISK:0", "-e", "host", "-o", "1"]);
    let fields = disk.path.with_extension("fields");
    std::fs::write(&fields, "owner_id 5\n").unwrap();
    let (_, stderr, status) =
        disk.run(&["write_leader", "-s", "LS:2:DISK:0", "-F", fields.to_str().unwrap()]);
    assert_eq!(status, Some(0), "{stderr}");
    let before = disk.bytes();
    for (action, in_result) in [("renew_id", "rewew_id"), ("release_id", "release_id")] {
        let (stdout, stderr, status) = disk.run(&[action, "-s", "LS:2:DISK:0", "-e", "host", "-o", "1"]);
        assert_eq!((stdout, status), (format!("{in_result} done -260\n"), Some(1)), "{stderr}");
        assert!(stderr.contains("the record names host id 5 as its owner, expected 2"), "{stderr}");
        assert!(disk.bytes() == before, "{action} wrote");
    }
}

#[test]
fn an_area_that_the_storage_cuts_short_is_told_beside_the_table() {
    let disk = Disk::formatted();
    let cut = |bytes: u64| {
        std::fs::OpenOptions::new().write(true).open(&disk.path).unwrap().set_len(bytes).unwrap()
    };
    let dump = || disk.run(&["dump", "DISK"]);
    let whole = dump();
    assert_eq!((whole.1.as_str(), whole.2), ("", Some(0)));
    // Where nothing begins nothing is cut.
    cut(5 << 19);
    assert_eq!(dump(), whole);
    cut(3 << 19);
    let (stdout, stderr, status) = dump();
    assert_eq!((stdout.lines().count(), status), (1, Some(0)), "{stdout}");
    assert!(stderr.contains("the area at 1048576 ends after 524288 of 1048576 bytes"), "{stderr}");
    assert!(stderr.contains("see 'sanlock fsck'"), "{stderr}");
    // An acquire needs the whole area, and says so with the number that it always had.
    for (bytes, result, left) in [(3 << 19, -210, 524_288), ((1 << 20) + 512, -90, 512), (1 << 20, -90, 0)] {
        cut(bytes);
        let why = format!(
            "{} ends after {left} of the 1048576 bytes of the lease at offset 1048576: ",
            disk.path.display()
        );
        let (stdout, stderr, status) = disk.run(&["acquire", "-r", "LS:R:DISK:1M", "-i", "1", "-g", "1"]);
        assert_eq!((stdout, status), (format!("acquire done {result}\n"), Some(1)), "{stderr}");
        assert!(stderr.contains(&why), "{stderr}");
    }
    cut(1 << 19);
    let (stdout, stderr, status) = disk.run(&["dump", "DISK"]);
    assert_eq!((stdout.lines().count(), status), (1, Some(0)), "{stdout}");
    assert!(stderr.contains("the area at 0 ends after 524288 of 1048576 bytes"), "{stderr}");
}
