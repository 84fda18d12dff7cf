//! `sanlock fsck`: what it finds, what it refuses to touch, and what its repairs leave behind.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use sanlock_lease::fsck::{Level, Problem};
use sanlock_manual::json::is_documented;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Exit statuses.
const CLEAN: i32 = 0;
const DAMAGED: i32 = 1;
const REPAIRED: i32 = 2;
const UNUSABLE: i32 = 3;
const REFUSED: i32 = 4;
/// The original, as packaged.
const ORIGINAL: &str = "/usr/sbin/sanlock";

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

/// A daemon of ours, ended when it goes.
struct Daemon {
    child: Child,
    run_dir: PathBuf,
}

impl Daemon {
    fn start(dir: &Path) -> Self {
        let run_dir = dir.join("run");
        std::fs::create_dir_all(&run_dir).unwrap();
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sanlock"))
            .args(["daemon", "-D", "-w", "0", "-h", "0", "-l", "0", "-U", "root", "-G", "root", "-e", "here"])
            .env("SANLOCK_RUN_DIR", &run_dir)
            .env("SANLOCK_PRIVILEGED", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Self { child, run_dir };
        let began = Instant::now();
        while !daemon.client(&["status"]).status.success() {
            assert!(began.elapsed() < Duration::from_secs(60), "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        daemon
    }

    fn client(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        command.arg("client").args(args).env("SANLOCK_RUN_DIR", &self.run_dir).output().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
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
