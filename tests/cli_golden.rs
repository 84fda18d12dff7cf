//! The command against what 3.8.5 printed in the same situation, as far as no daemon is needed.
//!
//! Recorded commands use lease files in `/srv/lease`; here they lie in a temporary directory. Where this program differs on
//! purpose, the row says how.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::process::{Command, Output};

/// Directory of the recorded commands' lease files.
const RECORDED_DIR: &str = "/srv/lease";

struct Recorded {
    args: Vec<String>,
    exit: i32,
    stdout: Vec<u8>,
}

fn golden(kind: &str, name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(kind).join(name)
}

/// Reads a recording: header lines, then as many bytes of stdout as the header says.
fn recorded(name: &str) -> Recorded {
    let bytes = std::fs::read(golden("cli", &format!("{name}.txt"))).unwrap();
    let marker = b"--- stdout\n";
    let at = bytes.windows(marker.len()).position(|window| window == marker).unwrap();
    let header = String::from_utf8(bytes[..at].to_vec()).unwrap();
    let value = |key: &str| header.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim();
    let len: usize = value("stdout-bytes:").parse().unwrap();
    let command = value("command:");
    Recorded {
        args: command.split_whitespace().skip(1).map(str::to_owned).collect(),
        exit: value("exit:").parse().unwrap(),
        stdout: bytes[at + marker.len()..][..len].to_vec(),
    }
}

/// Runs the program with lease files in `dir`, where also no daemon runs.
fn run(dir: &Path, args: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sanlock"))
        .args(args.iter().map(|arg| arg.replace(RECORDED_DIR, dir.to_str().unwrap())))
        .env("SANLOCK_RUN_DIR", dir.join("run"))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a recorded command; stdout and exit status must be those recorded.
fn same(dir: &Path, name: &str) -> Output {
    let recorded = recorded(name);
    let output = run(dir, &recorded.args);
    let expected = text(&recorded.stdout).replace(RECORDED_DIR, dir.to_str().unwrap());
    assert_eq!(text(&output.stdout), expected, "{name}");
    assert_eq!(output.status.code(), Some(recorded.exit), "{name}");
    output
}

/// A directory for lease files on a file system with direct I/O.
fn lease_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn file(dir: &Path, name: &str, mib: u64) {
    std::fs::File::create(dir.join(name)).unwrap().set_len(mib << 20).unwrap();
}

#[test]
fn usage_errors_are_those_of_the_original() {
    let dir = lease_dir();
    for name in [
        "003-version",
        "006-unknown-action",
        "007-unknown-direct-action",
        "008-unknown-option",
        "009-unknown-word",
        "010-option-missing-arg",
        "011-option-attached-value",
        "012-long-option",
        "013-sizes-invalid",
        "014-sizes-align-only",
        "189-daemon-badopt",
    ] {
        let stderr = text(&same(dir.path(), name).stderr);
        let explained = stderr.starts_with("sanlock: ") && stderr.lines().count() == 1;
        assert!(explained || name == "003-version", "{name}: {stderr}");
    }
}

#[test]
fn without_a_daemon_stdout_and_status_are_those_of_the_original() {
    let dir = lease_dir();
    for name in [
        "019-nodaemon-status",
        "020-nodaemon-gets",
        "021-nodaemon-host_status",
        "022-nodaemon-log_dump",
        "023-nodaemon-client-version",
        "024-nodaemon-add_lockspace",
        "025-nodaemon-inq_lockspace",
        "026-nodaemon-acquire",
        "027-nodaemon-inquire",
        "029-nodaemon-shutdown",
    ] {
        let stderr = text(&same(dir.path(), name).stderr);
        assert!(
            stderr.contains("is the daemon running?") && stderr.contains("ENOENT (-2)"),
            "{name}: {stderr}"
        );
    }
}

#[test]
fn a_socket_without_a_daemon_is_told_apart_from_none() {
    let dir = lease_dir();
    std::fs::create_dir(dir.path().join("run")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("run/sanlock.sock")).unwrap());
    let stderr = text(&same(dir.path(), "188-stale-socket-gets").stderr);
    assert!(stderr.contains("no daemon listens") && stderr.contains("ECONNREFUSED (-111)"), "{stderr}");
}

/// The original exits 0 without having run the command.
#[test]
fn command_without_a_daemon_fails() {
    let dir = lease_dir();
    let recorded = recorded("028-nodaemon-command");
    let output = run(dir.path(), &recorded.args);
    assert_eq!(output.stdout, recorded.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the command was not run"), "{}", text(&output.stderr));
}

/// The original drops what it cannot read and carries on.
#[test]
fn slips_stop_the_command() {
    let dir = lease_dir();
    for (name, kept_lines, explained) in [
        ("016-resource-unparsable", 2, "3 fields, expected LOCKSPACE:RESOURCE:PATH:OFFSET"),
        ("017-resource-too-many", 1, "up to 8 resources"),
    ] {
        let recorded = recorded(name);
        let output = run(dir.path(), &recorded.args);
        let kept: Vec<u8> =
            recorded.stdout.split_inclusive(|&b| b == b'\n').take(kept_lines).flatten().copied().collect();
        assert_eq!(text(&output.stdout), text(&kept), "{name}");
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(text(&output.stderr).contains(explained), "{name}");
    }
    file(dir.path(), "disk", 2);
    let before = std::fs::read(dir.path().join("disk")).unwrap();
    for place in ["0x100000", "1m", "M", "", "-1", "12abc", "0:1M"] {
        let lease = format!("LS:0:{}:{place}", dir.path().join("disk").display());
        let output = run(dir.path(), &["direct", "init", "-s", &lease].map(str::to_owned));
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{place}");
    }
    assert!(std::fs::read(dir.path().join("disk")).unwrap() == before, "nothing was written");
}

#[test]
fn debug_shows_what_was_understood() {
    let dir = lease_dir();
    let recorded = recorded("018-debug-parse");
    let output = run(dir.path(), &recorded.args);
    assert_eq!(output.stdout, recorded.stdout);
    let stderr = text(&output.stderr);
    // Date, time, monotonic second and thread come first.
    let shown: Vec<_> = stderr.lines().filter_map(|line| line.split_once("]: ")).collect();
    let texts: Vec<_> = shown.iter().map(|(_, text)| *text).collect();
    assert_eq!(
        texts,
        [
            "lockspace LS host_id 1 path /srv/lease/ls offset 1048576",
            "resource LS R num_disks 2 flags 4 lver 0",
            "resource disk /a 1048576",
            "resource disk /b 2097152",
        ]
        .map(|text| text.replace(RECORDED_DIR, dir.path().to_str().unwrap()))
    );
    for (prefix, _) in shown {
        let words: Vec<_> = prefix.split(' ').collect();
        assert_eq!(words.len(), 4, "{prefix}");
        assert_eq!((words[0].len(), words[1].len()), (10, 8), "{prefix}");
        assert!(words[2].parse::<u64>().is_ok() && words[3].starts_with('['), "{prefix}");
    }
}

#[test]
fn help_in_all_its_forms() {
    let dir = lease_dir();
    let usage = run(dir.path(), &["help".to_owned()]).stdout;
    assert!(text(&usage).starts_with("Usage:\nsanlock <command> <action> ...\n"));
    for (args, exit) in [(&["--help"][..], 0), (&["-h"], 0), (&[], 0), (&["client"], 1), (&["direct"], 1)] {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let output = run(dir.path(), &args);
        assert_eq!((output.stdout == usage, output.status.code()), (true, Some(exit)), "{args:?}");
    }
    let output = run(dir.path(), &["--version".to_owned()]);
    assert!(text(&output.stdout).contains(" 3.8.5 ("), "{}", text(&output.stdout));
}

#[test]
fn what_is_not_here_says_so() {
    let dir = lease_dir();
    for (args, stdout) in [
        (&["spawn", "-r", "x"][..], "client action \"spawn\" is unknown\n"),
        (&["direct", "init_host"], "direct action \"init_host\" is unknown\n"),
    ] {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let output = run(dir.path(), &args);
        assert_eq!((text(&output.stdout).as_str(), output.status.code()), (stdout, Some(1)));
        assert!(text(&output.stderr).contains("an action of sanlock 5.1"), "{}", text(&output.stderr));
    }
}

#[test]
fn direct_actions_in_the_recorded_order() {
    let dir = lease_dir();
    for name in ["030-direct-init-noarg", "032-direct-dump-noarg", "033-direct-dump-nofile"] {
        same(dir.path(), name);
    }
    for (name, mib) in [("ls", 8), ("res", 16), ("extra", 8)] {
        file(dir.path(), name, mib);
    }
    for name in
        ["015-sizes-sector-only", "034-direct-dump-blank", "035-direct-init-ls", "036-direct-init-res"]
    {
        same(dir.path(), name);
    }
    for resource in ["LS:R1:/srv/lease/res:1M", "LS:R2:/srv/lease/res:2097152"] {
        let output = run(dir.path(), &["direct", "init", "-r", resource].map(str::to_owned));
        assert_eq!(text(&output.stdout), "init done 0\n");
    }
    for name in [
        "037-direct-read_leader-ls-new",
        "038-direct-read_leader-res-new",
        "039-direct-read_leader-wrongname",
        "040-direct-read_leader-wronglockspace",
        "041-direct-read_leader-notlease",
        "042-direct-next_free-sizes",
        "043-direct-init-clear",
        "107-direct-dump-misaligned",
    ] {
        same(dir.path(), name);
    }
    // The time of clearing stands in the record.
    let recorded = recorded("044-direct-read_leader-cleared");
    let output = run(dir.path(), &recorded.args);
    let without_time = |bytes: &[u8]| text(bytes).split("write_timestamp").next().unwrap().to_owned();
    assert_eq!(without_time(&output.stdout), without_time(&recorded.stdout));
    assert_eq!(output.status.code(), Some(1));
    // 3.8.5 prints random results here, 5.1.1 this.
    let output = run(dir.path(), &["direct", "next_free", "/srv/lease/res"].map(str::to_owned));
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("3145728\n", Some(0)));
    // As recorded from 5.1.1, which has this action.
    for (args, line) in [
        (["-s", "LS:1:/srv/lease/ls:0"], "s LS:1:/srv/lease/ls:0"),
        (["-r", "LS:R0:/srv/lease/res:0"], "r LS:R0:/srv/lease/res:0:0"),
    ] {
        let args: Vec<String> = ["direct", "read"].iter().chain(&args).map(|arg| (*arg).to_owned()).collect();
        let expected = format!("read done 0\n{line}\n").replace(RECORDED_DIR, dir.path().to_str().unwrap());
        assert_eq!(text(&run(dir.path(), &args).stdout), expected);
    }
}

/// Taking and giving up leases without a daemon, in the order of the recordings.
#[test]
fn direct_lease_actions_in_the_recorded_order() {
    let dir = lease_dir();
    file(dir.path(), "extra", 8);
    for args in [
        ["direct", "init", "-s", "DL:0:/srv/lease/extra:4M", "-o", "1"],
        ["direct", "init", "-r", "DL:D1:/srv/lease/extra:5M", "-o", "1"],
    ] {
        assert_eq!(text(&run(dir.path(), &args.map(str::to_owned)).stdout), "init done 0\n");
    }
    for name in [
        "172-direct-acquire_id",
        "173-direct-renew_id",
        "174-direct-acquire",
        "175-direct-acquire-held",
        "176-direct-release",
        "177-direct-release_id",
    ] {
        same(dir.path(), name);
    }
    // The record has the time of the acquire in it, and so has its sum.
    std::fs::write(dir.path().join("leader.txt"), "owner_generation 9\nbogus 1\nlver 8\nresource_name NEW\n")
        .unwrap();
    let recorded = recorded("178-direct-write_leader");
    let output = run(dir.path(), &recorded.args);
    let masked = |bytes: &[u8]| {
        let mask = |line: &str| {
            let varies = ["use new generated checksum ", "timestamp ", "checksum ", "write_timestamp "];
            varies.iter().find(|start| line.starts_with(**start)).map_or(line, |start| start).to_owned()
        };
        text(bytes).lines().map(mask).collect::<Vec<_>>()
    };
    assert_eq!(masked(&output.stdout), masked(&recorded.stdout));
    assert_eq!(output.status.code(), Some(recorded.exit));
}

/// The original prints whatever its memory holds.
#[test]
fn a_leader_that_cannot_be_read_shows_zeros() {
    let dir = lease_dir();
    let recorded = recorded("031-direct-read_leader-nofile");
    let output = run(dir.path(), &recorded.args);
    assert_eq!(output.status.code(), Some(recorded.exit));
    let stdout = text(&output.stdout);
    let mut lines = stdout.lines();
    assert_eq!(lines.next(), Some("read_leader done -2"));
    let fields: Vec<_> = lines.collect();
    assert_eq!(fields.len(), 17);
    for field in fields {
        let (_, value) = field.split_once(' ').unwrap();
        assert!(matches!(value, "0" | "0x0" | ""), "{field}");
    }
}

fn image(dir: &Path, name: &str) {
    unpack(&golden("disk", &format!("{name}.img.gz")), dir, name);
}

fn unpack(image: &Path, dir: &Path, name: &str) {
    let packed = std::fs::File::open(image).unwrap();
    let mut file = std::fs::File::create(dir.join(name)).unwrap();
    std::io::copy(&mut flate2::read::GzDecoder::new(packed), &mut file).unwrap();
}

/// Images written by 3.8.5, dumped by 3.8.5 and by this program.
#[test]
fn dumps_of_recorded_images() {
    let dir = lease_dir();
    let mut dumps = 0;
    for entry in std::fs::read_dir(golden("disk", "")).unwrap() {
        let file_name = entry.unwrap().file_name().into_string().unwrap();
        let name = file_name.strip_suffix(".img.gz").unwrap();
        image(dir.path(), name);
        for detail in ["0", "1", "2"] {
            let args = ["direct", "dump", &format!("{RECORDED_DIR}/{name}"), "-f", detail].map(str::to_owned);
            let output = run(dir.path(), &args);
            let expected = std::fs::read(golden("dump", &format!("{name}-f{detail}.txt"))).unwrap();
            assert_eq!(text(&output.stdout), text(&expected), "{name} -f {detail}");
            let said = text(&output.stderr);
            // The table ends at an area that was cleared.
            let ends_early = name == "v38-rindex-512-1m-3created-1deleted";
            assert_eq!(said.contains("others follow"), ends_early, "{name}: {said}");
            assert_eq!((said.is_empty(), output.status.code()), (!ends_early, Some(0)), "{name}: {said}");
            dumps += 1;
        }
    }
    assert_eq!(dumps, 24);
}

/// A lockspace of 5.1.1 in which an administrator declared host 1 dead.
#[test]
fn who_was_declared_dead_is_dead() {
    let dir = lease_dir();
    let name = "v51-ls-512-1m-dead-ext";
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("lease/tests/golden/disk");
    unpack(&images.join(format!("{name}.img.gz")), dir.path(), name);
    let args = ["who", "--watch", "1", &format!("{RECORDED_DIR}/{name}:0")].map(str::to_owned);
    let output = run(dir.path(), &args);
    let shown = text(&output.stdout);
    let said = "host 1 \"gamma\" generation 2: DEAD, declared dead by an administrator (DEAD_EXT)";
    assert!(shown.contains(said), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("host 77 \"delta\" generation 1: UNKNOWN"), "{shown}");
}

/// Sizes that do not fit what is there, and damage, end in a message, never in a panic.
#[test]
fn damaged_images_are_survived() {
    let dir = lease_dir();
    image(dir.path(), "v38-res-512-1m-sh2");
    let path = dir.path().join("v38-res-512-1m-sh2");
    let sound = std::fs::read(&path).unwrap();
    for at in (0..200).chain([512, 516, 520, 1024, 1152, 1156]) {
        let mut damaged = sound.clone();
        damaged[at] ^= 0xff;
        std::fs::write(&path, &damaged).unwrap();
        for args in [
            &["direct", "dump", "/srv/lease/v38-res-512-1m-sh2", "-f", "2"][..],
            &["direct", "read_leader", "-r", "golden-ls:res-sh2:/srv/lease/v38-res-512-1m-sh2:0"],
        ] {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let output = run(dir.path(), &args);
            assert!(matches!(output.status.code(), Some(0 | 1)), "byte {at}: {output:?}");
        }
    }
}

/// Without a path the original looks for one of no name.
#[test]
fn a_dump_of_no_path_finds_no_device() {
    for place in ["", ":0"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_sanlock")).args(["direct", "dump", place]).output().unwrap();
        assert_eq!(
            (text(&output.stdout).as_str(), output.status.code()),
            ("Device  not found.\n", Some(1)),
            "{place:?}"
        );
        assert!(text(&output.stderr).contains("no path given"), "{}", text(&output.stderr));
    }
}

#[test]
fn direct_actions_take_relative_paths() {
    let dir = lease_dir();
    file(dir.path(), "ls", 2);
    let run = |args: &[&str]| {
        let program = env!("CARGO_BIN_EXE_sanlock");
        let output = Command::new(program).args(args).current_dir(dir.path()).output().unwrap();
        (text(&output.stdout), output.status.code())
    };
    assert_eq!(run(&["direct", "init", "-s", "LS:0:ls:0", "-o", "1"]), ("init done 0\n".to_owned(), Some(0)));
    let (leader, code) = run(&["direct", "read_leader", "-s", "LS:1:./ls:0"]);
    assert!(leader.contains("\nspace_name LS\n"), "{leader}");
    assert_eq!(code, Some(0));
}
