//! `sanlock fsck`: what it finds, what it refuses to touch, and what its repairs leave behind.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../daemon/mod.rs"]
mod daemon;
mod repairs;

use sanlock_lease::fsck::{Level, Problem};
use sanlock_manual::json::is_documented;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MIB: usize = 1 << 20;
/// Exit statuses.
const CLEAN: i32 = 0;
const DAMAGED: i32 = 1;
const REPAIRED: i32 = 2;
const UNUSABLE: i32 = 3;
const REFUSED: i32 = 4;

fn sanlock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
    // No daemon answers here, whatever runs on this machine.
    command.env("SANLOCK_RUN_DIR", "/nonexistent");
    command
}

/// A file with leases, in a directory of its own.
struct Disk {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Disk {
    fn of_size(bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        Self { dir, path }
    }

    /// A lockspace LS at 0 and resources R1 and R2 behind it.
    fn formatted() -> Self {
        let disk = Self::of_size(4 << 20);
        disk.direct(&["init", "-s", "LS:0:DISK:0", "-o", "1"]);
        disk.direct(&["init", "-r", "LS:R1:DISK:1M"]);
        disk.direct(&["init", "-r", "LS:R2:DISK:2M"]);
        disk
    }

    fn named(&self, text: &str) -> String {
        text.replace("DISK", self.path.to_str().unwrap())
    }

    #[track_caller]
    fn direct(&self, args: &[&str]) {
        let output = sanlock().arg("direct").args(args.iter().map(|a| self.named(a))).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output));
    }

    fn fsck(&self, args: &[&str]) -> Output {
        let mut command = sanlock();
        command.arg("fsck").args(args.iter().map(|a| self.named(a))).current_dir(self.dir.path());
        command.output().unwrap()
    }

    /// Runs it, expects this exit status and all of these words, and returns the output.
    #[track_caller]
    fn expect(&self, args: &[&str], status: i32, words: &[&str]) -> String {
        let output = self.fsck(args);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
        for word in words {
            assert!(text.contains(&self.named(word)), "{args:?}: {word:?} is not in: {text}");
        }
        text
    }

    /// The same, and nothing on the disk changes.
    #[track_caller]
    fn untouched(&self, args: &[&str], status: i32, words: &[&str]) -> String {
        let before = self.bytes();
        let text = self.expect(args, status, words);
        assert!(self.bytes() == before, "{args:?} wrote: {text}");
        text
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    fn poke(&self, at: usize, bytes: &[u8]) {
        let file = std::fs::OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(bytes, at.try_into().unwrap()).unwrap();
    }

    /// Changes a leader and gives it the right checksum, as an administrator would.
    fn write_leader(&self, target: &[&str], fields: &str) {
        let file = self.dir.path().join("fields");
        std::fs::write(&file, fields).unwrap();
        let args = [&["write_leader"], target, &["-F", file.to_str().unwrap()]].concat();
        self.direct(&args);
    }

    /// Host `id` holds its host id, as on disk.
    fn held(&self, id: u64, generation: u64, timestamp: u64) {
        let target = format!("LS:{id}:DISK:0");
        let fields = format!(
            "owner_id {id}\nowner_generation {generation}\nresource_name h{id}\ntimestamp {timestamp}\n"
        );
        self.write_leader(&["-s", &target], &fields);
    }

    fn saved(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.dir.path()).unwrap().map(|e| e.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|e| e == "saved")).collect()
    }
}

fn text(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    out + &err
}

/// Byte of a host's sector in the resource at 1 MiB.
fn block(host: usize) -> usize {
    MIB + (host + 1) * 512
}

/// Nobody can join what is gone, and its leases are all in order.
#[test]
fn leases_whose_lockspace_is_gone_are_not_said_to_be_all_there_is() {
    // Where there is nothing at all, the lockspace may be on a volume of its own.
    for (byte, status, total) in
        [(0, CLEAN, "nothing is wrong"), (0x55, UNUSABLE, "nothing is wrong with what was found")]
    {
        let disk = Disk::formatted();
        disk.poke(0, &vec![byte; MIB]);
        disk.untouched(&["DISK"], status, &[total, "no lockspace begins there, and lockspace \"LS\""]);
        // Also where another place has shown what is behind it.
        let words = [total, "DISK:0: no lockspace begins there, and lockspace \"LS\""];
        disk.untouched(&["DISK:1M", "DISK"], status, &words);
        // It may be elsewhere.
        let elsewhere = Disk::formatted();
        let place = format!("{}:0", elsewhere.path.display());
        disk.untouched(&["DISK", "--lockspace", &place], CLEAN, &["nothing is wrong"]);
    }
}

#[test]
fn what_is_in_order_is_described_and_nothing_is_written() {
    let disk = Disk::formatted();
    disk.direct(&["acquire", "-r", "LS:R1:DISK:1M", "-i", "3", "-g", "5"]);
    disk.held(3, 5, 7);
    disk.untouched(
        &["DISK"],
        CLEAN,
        &[
            "DISK:0  lockspace \"LS\", 512/1M: 1 host ids held, 0 free and used before",
            "DISK:1048576  resource \"R1\" of lockspace \"LS\", 512/1M: version 1, owned by host id 3, generation 5",
            "DISK:2097152  resource \"R2\" of lockspace \"LS\", 512/1M: version 0, free",
            "3 area(s): nothing is wrong",
        ],
    );
    let one = disk.untouched(&["DISK:1M:1M", "--lockspace", "DISK"], CLEAN, &["2 area(s)"]);
    // The name of the directory may have these letters, too.
    assert!(!one.contains("\"R2\""), "{one}");
    disk.untouched(&["DISK:2M"], CLEAN, &["lockspace \"LS\" is none of the places", "--lockspace"]);
    // With nothing wrong there is nothing to repair, so a host that lives is no reason to refuse.
    disk.untouched(&["DISK", "--repair"], CLEAN, &["nothing is wrong"]);
    assert_eq!(disk.saved(), [] as [PathBuf; 0]);
}

#[test]
fn storage_that_cannot_be_written_can_be_checked() {
    let disk = Disk::formatted();
    let mut permissions = std::fs::metadata(&disk.path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o444);
    std::fs::set_permissions(&disk.path, permissions).unwrap();
    disk.untouched(&["DISK"], CLEAN, &["nothing is wrong"]);
}

#[test]
fn damage_is_told_with_place_values_meaning_and_advice_and_is_left_alone() {
    let disk = Disk::formatted();
    disk.poke(2 * 512 + 40, &[9]);
    disk.poke(block(7), &[0xa5; 56]);
    disk.poke(2 * MIB, &[0]);
    let text = disk.untouched(
        &["DISK"],
        DAMAGED,
        &[
            "DAMAGE host-id-checksum: DISK at byte 1192 (sector 2 of the area at 0)",
            "what      the record of host id 3",
            "found     checksum 0x",
            "means     this host id cannot be joined (-229)",
            "do        stop the host that uses this id, then repair",
            "repair    host id 3 becomes free, its next generation is above 9",
            "DAMAGE ballot-checksum: DISK at byte 1052720 (sector 8 of the area at 1048576)",
            "repair    the ballot record of host id 7 is forgotten",
            "DAMAGE leader-magic: DISK at byte 2097152",
            "resource, 512/1M: its leader cannot be believed",
            "3 damaged place(s), 0 note(s); 2 can be repaired with --repair, nothing was written",
        ],
    );
    assert_eq!(text.matches("repair    ").count(), 2, "{text}");
}

#[test]
fn the_same_as_json() {
    let disk = Disk::formatted();
    disk.poke(block(7), &[0xa5; 56]);
    let output = disk.fsck(&["DISK", "--json"]);
    assert_eq!(output.status.code(), Some(DAMAGED));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of =
        |pointer: &str| report.pointer(pointer).unwrap_or_else(|| panic!("{pointer}: {report:#}")).clone();
    assert_eq!(
        (of("/schema"), of("/command"), of("/damaged"), of("/notes")),
        (1.into(), "fsck".into(), 1.into(), 0.into())
    );
    assert_eq!((of("/areas/0/kind"), of("/areas/0/findings")), ("lockspace".into(), serde_json::json!([])));
    let resource = [
        of("/areas/1/lockspace"),
        of("/areas/1/resource"),
        of("/areas/1/offset"),
        of("/areas/1/sector_size"),
    ];
    assert_eq!(serde_json::json!(resource), serde_json::json!(["LS", "R1", MIB, 512]));
    let finding = of("/areas/1/findings/0");
    assert_eq!(
        (&finding["problem"], &finding["offset"], &finding["sector"]),
        (&"ballot-checksum".into(), &1_052_720.into(), &8.into())
    );
    assert_eq!(finding["repair"], "the ballot record of host id 7 is forgotten");
    is_documented("fsck", &[&report]);
    disk.expect(&["DISK", "--json", "--repair"], UNUSABLE, &["--repair"]);
}

#[test]
fn what_only_several_areas_show_is_found() {
    let disk = Disk::formatted();
    disk.direct(&["init", "-r", "LS:R1:DISK:3M"]);
    disk.untouched(
        &["DISK"],
        CLEAN,
        &["note resource-twice: DISK at byte 3145728", "offset 1048576", "1 note"],
    );
    // The owner has a generation that its host id never had.
    disk.direct(&["acquire", "-r", "LS:R2:DISK:2M", "-i", "3", "-g", "5"]);
    disk.untouched(&["DISK"], DAMAGED, &["DAMAGE owner-unknown", "the host id was never joined"]);
    disk.held(3, 4, 7);
    disk.untouched(&["DISK"], DAMAGED, &["DAMAGE owner-unknown", "at most 4"]);
    disk.held(3, 5, 7);
    disk.untouched(&["DISK"], CLEAN, &[]);
    // The second disk of a resource.
    let other = disk.dir.path().join("other");
    std::fs::copy(&disk.path, &other).unwrap();
    let place = format!("{}:2M:1M", other.to_str().unwrap());
    disk.untouched(&["DISK:0:3M", &place], CLEAN, &["4 area(s)"]);
    disk.write_leader(&["-r", "LS:R2:DISK:2M"], "owner_id 4\nowner_generation 1\n");
    disk.untouched(&["DISK:2M:1M", &place], DAMAGED, &["DAMAGE disks-contradict", "host id 4", "host id 3"]);
    disk.write_leader(&["-r", "LS:R2:DISK:2M"], "lver 9\n");
    disk.untouched(&["DISK:2M:1M", &place], CLEAN, &["note disks-behind"]);
}

/// A leader that only missed some versions is no damage: another disk has the one that goes with the ballots.
#[test]
fn a_disk_that_is_behind_is_judged_by_the_others() {
    let disk = Disk::formatted();
    let other = disk.dir.path().join("other");
    let place = format!("{}:2M:1M", other.to_str().unwrap());
    let take = |id: &str| {
        disk.direct(&["acquire", "-r", "LS:R2:DISK:2M", "-i", id, "-g", "5"]);
        disk.direct(&["release", "-r", "LS:R2:DISK:2M", "-i", id, "-g", "5"]);
    };
    take("3");
    std::fs::copy(&disk.path, &other).unwrap();
    (4..8).for_each(|id| take(&id.to_string()));
    let leader = std::fs::read(&other).unwrap()[2 * MIB..2 * MIB + 512].to_vec();
    std::fs::copy(&disk.path, &other).unwrap();
    disk.poke(2 * MIB, &leader);
    let alone = disk.untouched(
        &["DISK:2M:1M", "--lockspace", "DISK"],
        DAMAGED,
        &["DAMAGE ballot-ahead", "version 6"],
    );
    assert!(alone.contains("found     version 5, while the leader has 1"), "{alone}");
    disk.untouched(&["DISK:2M:1M", &place], CLEAN, &["note disks-behind", "1 note"]);
    // What is repaired of one disk alone is nobody's, and agrees with what the others have.
    disk.expect(
        &["DISK:2M:1M", "--lockspace", "DISK", "--repair", "--io-timeout", "1", "--fire-timeout", "4"],
        REPAIRED,
        &["repaired"],
    );
    disk.untouched(
        &["DISK:2M:1M", &place],
        CLEAN,
        &["version 6, free", "version 5, free", "note disks-behind"],
    );
}

#[test]
fn a_lockspace_whose_first_records_are_lost_is_found_by_the_others() {
    let disk = Disk::formatted();
    disk.poke(0, &[0; 34 * 512]);
    disk.untouched(
        &["DISK"],
        DAMAGED,
        &[
            "DISK:0  lockspace \"LS\", 512/1M: 0 host ids held",
            "34 damaged",
            "29 more of host-id-magic",
            "3 area(s)",
        ],
    );
    disk.expect(
        &["DISK", "--repair", "--io-timeout", "1", "--fire-timeout", "4"],
        REPAIRED,
        &["34 host id(s)"],
    );
    disk.untouched(&["DISK"], CLEAN, &["3 area(s): nothing is wrong"]);
}

#[test]
fn an_area_that_does_not_fit_is_found() {
    let disk = Disk::formatted();
    std::fs::OpenOptions::new().write(true).open(&disk.path).unwrap().set_len(5 << 19).unwrap();
    disk.untouched(&["DISK"], DAMAGED, &["DAMAGE area-short: DISK", "after 524288 bytes"]);
}

#[test]
fn where_nothing_can_be_said_the_exit_status_says_so() {
    let disk = Disk::of_size(4 << 20);
    disk.untouched(&["DISK"], UNUSABLE, &["no lockspace, lease or index was found"]);
    // One of several disks is empty.
    let full = Disk::formatted();
    let place = full.named("DISK:1M:1M");
    let text = disk.untouched(
        &[&place, "DISK:1M:1M"],
        UNUSABLE,
        &[
            "DISK:1048576: no lockspace, lease or index was found there",
            "nothing is wrong with what was found",
        ],
    );
    assert!(text.contains("1 area(s)"), "{text}");
    disk.untouched(&[&place, "--lockspace", "DISK"], UNUSABLE, &["DISK:0: no lockspace, lease or index"]);
    disk.expect(&["DISK-not-there"], UNUSABLE, &["disk-not-there"]);
    disk.expect(&[], UNUSABLE, &["PATH[:OFFSET[:SIZE]]"]);
    disk.expect(&["DISK:x"], UNUSABLE, &["offset"]);
    disk.expect(&["DISK", "--frobnicate"], UNUSABLE, &["--frobnicate"]);
    disk.expect(&["DISK", "--no-wait"], UNUSABLE, &["--repair"]);
    disk.expect(&["DISK", "--io-timeout", "256"], UNUSABLE, &["256"]);
    disk.expect(&["/dev/null"], UNUSABLE, &["/dev/null"]);
    disk.expect(&["--help"], CLEAN, &["--repair", "Exit status"]);
}

#[test]
fn the_guide_has_every_finding_with_its_meaning() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/fsck.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = guide.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = Problem::ALL
        .iter()
        .map(|p| {
            let level = if p.level() == Level::Damage { "damage" } else { "note" };
            format!("| `{}` | {level} | {} |", p.code(), p.means())
        })
        .collect();
    assert_eq!(rows, expected);
}
