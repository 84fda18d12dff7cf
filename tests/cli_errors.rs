//! What people are told when something fails: every row names what failed, on what, why, and what to do next
//! (docs/decisions/0013-explanations.md). Only what needs no daemon; `conformance` has the answers of daemons.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Runs the program, with `DIR` replaced; exit status, stdout, stderr.
fn run(dir: &Path, line: &str) -> (Option<i32>, String, String) {
    let args = line.split_whitespace().map(|word| word.replace("DIR", dir.to_str().unwrap()));
    let output = Command::new(env!("CARGO_BIN_EXE_sanlock"))
        .args(args)
        .env("SANLOCK_RUN_DIR", dir.join("run"))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Lease files on a file system with direct I/O: `good` has lockspace LS and resource LS:R, `index` an index, `empty` nothing,
/// `short` ends early.
fn lease_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (name, bytes) in [("good", 4 << 20), ("index", 4 << 20), ("empty", 4 << 20), ("short", 512)] {
        std::fs::File::create(dir.path().join(name)).unwrap().set_len(bytes).unwrap();
    }
    for init in ["direct init -s LS:0:DIR/good:0", "direct init -r LS:R:DIR/good:1M"] {
        let (code, stdout, stderr) = run(dir.path(), init);
        assert_eq!((code, stdout.as_str()), (Some(0), "init done 0\n"), "{stderr}");
    }
    let (code, _, stderr) = run(dir.path(), "direct format -x LS:DIR/index:0");
    assert_eq!(code, Some(0), "{stderr}");
    dir
}

/// A failure: the action as messages call it, the object, the number, and words of reason and next step.
struct Row {
    line: &'static str,
    action: &'static str,
    object: &'static str,
    result: i32,
    words: &'static [&'static str],
}

const fn row(
    line: &'static str,
    action: &'static str,
    object: &'static str,
    result: i32,
    words: &'static [&'static str],
) -> Row {
    Row { line, action, object, result, words }
}

/// Nobody listens: the object is the socket, whatever was asked.
const NO_DAEMON: &[&str] = &["is the daemon running?", "ENOENT", "start it"];

#[rustfmt::skip]
const FAILURES: &[Row] = &[
    row("status", "status", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("status -D", "status", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("host_status", "host_status", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("host_status -s LS", "host_status", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("gets", "gets", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("renewal -s LS", "renewal", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("renewal -s LS --plot DIR/x.svg", "renewal", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("log_dump", "log_dump", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("client version", "version", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("shutdown", "shutdown", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("shutdown -w 1", "shutdown", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("client init -s LS:0:DIR/empty:0", "init", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("read -s LS:1:DIR/good:0", "read", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("read -r LS:R:DIR/good:1M", "read", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("align -s LS:1:DIR/good:0", "align", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("add_lockspace -s LS:1:DIR/good:0", "add_lockspace", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("inq_lockspace -s LS:1:DIR/good:0", "inq_lockspace", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("rem_lockspace -s LS:1:DIR/good:0", "rem_lockspace", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("set_config -s LS -u 1", "set_config", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("acquire -r LS:R:DIR/good:1M -p 1", "acquire", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("release -r LS:R:DIR/good:1M -p 1", "release", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("convert -r LS:R:DIR/good:1M:SH -p 1", "convert", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("inquire -p 1", "inquire", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("request -r LS:R:DIR/good:1M:1 -f 1", "request", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("examine -r LS:R:DIR/good:1M", "examine", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("examine -s LS:1:DIR/good:0", "examine", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("set_event -s LS -i 1 -e 1", "set_event", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("command -r LS:R:DIR/good:1M -c /bin/true", "command", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("client format -x LS:DIR/good:2M", "format", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("client lookup -x LS:DIR/good:2M -e R", "lookup", "DIR/run/sanlock.sock", -2, NO_DAEMON),
    row("client create -x LS:DIR/good:2M", "create_resource", "resource index LS:DIR/good:2097152", -22, &["name of the resource is missing", "give it: -e NAME"]),
    row("client create -x LS:DIR/good:2M -e :3M", "create_resource", "resource index LS:DIR/good:2097152", -22, &["name of the resource is missing", "give it: -e NAME"]),
    row("client delete -x LS:DIR/good:2M", "delete_resource", "DIR/run/sanlock.sock", -2, &["no resource was named: give it: -e NAME"]),
    row("client create -x LS:DIR/good:2M -e R", "create_resource", "DIR/run/sanlock.sock", -2, NO_DAEMON),

    row("init -r LS:R", "init", "resource LS:R", -22, &["without disks", "sanlock help"]),
    row("direct init -s LS:0:DIR/none:0", "init", "lockspace LS:0:DIR/none:0", -19, &["ENODEV", "No such file", "check the path"]),
    row("direct init -r LS:R:DIR/none:0", "init", "resource LS:R:DIR/none:0", -2, &["ENOENT", "No such file", "check the path"]),
    row("direct init -r LS:R:DIR/good:1", "init", "resource LS:R:DIR/good:1", -22, &["EINVAL", "multiple"]),
    row("direct init -s LS:0:DIR/good:0 -Z 512", "init", "lockspace LS:0:DIR/good:0", -1, &["must be given together", "-Z 512 -A 1M"]),
    row("direct init -s LS:0:DIR/good:1", "init", "lockspace LS:0:DIR/good:1", -22, &["EINVAL", "multiple"]),
    row("direct init -r LS:R:/dev/null:0", "init", "resource LS:R:/dev/null:0", -22, &["neither a regular file", "next: name a file or a block device;"]),
    row("direct init -r LS:R:DIR:0", "init", "resource LS:R:DIR:0", -21, &["is a directory", "name the file or device itself"]),
    row("direct init -s LS:0:/dev/null:0", "init", "lockspace LS:0:/dev/null:0", -19, &["neither a regular file", "next: name a file or a block device;"]),
    row("direct read_leader -s LS:1:DIR/empty:0", "read_leader", "lockspace LS:1:DIR/empty:0", -1, &["no lease at this place", "sanlock direct dump"]),
    row("direct read_leader -s LS:1:DIR/none:0", "read_leader", "lockspace LS:1:DIR/none:0", -19, &["No such file", "check the path"]),
    row("direct read_leader -s LT:1:DIR/good:0", "read_leader", "lockspace LT:1:DIR/good:0", -226, &["SANLK_LEADER_LOCKSPACE", "\"LS\"", "next: 'sanlock direct dump"]),
    row("direct read_leader -r LS:X:DIR/good:1M", "read_leader", "resource LS:X:DIR/good:1048576", -227, &["SANLK_LEADER_RESOURCE", "\"R\"", "next: 'sanlock direct dump"]),
    row("direct read_leader -r LS:R:DIR/short:0", "read_leader", "resource LS:R:DIR/short:0", -90, &["EMSGSIZE", "check the path and the offset"]),
    row("direct read_leader -r LS:R:DIR:0", "read_leader", "resource LS:R:DIR:0", -21, &["EISDIR", "name the file or device itself"]),
    row("direct read -r LS:R:DIR/empty:0", "read", "resource LS:R:DIR/empty:0", -223, &["SANLK_LEADER_MAGIC", "sanlock direct dump"]),
    row("direct write_leader -r LS:R:DIR/good:1M -F DIR/none", "write_leader", "file of values DIR/none", -2, &["No such file", "check that the file exists"]),
    row("direct acquire -r LS:R:DIR/good:1M", "acquire", "resource LS:R:DIR/good:1048576", -22, &["-i", "sanlock help"]),
    row("direct acquire -r LS:R:DIR/empty:0 -i 1 -g 1", "acquire", "resource LS:R:DIR/empty:0", -1, &["no lease at this place", "sanlock direct dump"]),
    row("direct acquire_id -s LS:2001:DIR/good:0", "acquire_id", "lockspace LS:2001:DIR/good:0", -223, &["2000", "sanlock direct dump"]),
    row("direct renew_id -s LS:1:DIR/good:0", "renew_id", "lockspace LS:1:DIR/good:0", -22, &["use acquire_id", "direct dump"]),
    row("direct acquire_id -s LS:1:DIR/good:100", "acquire_id", "lockspace LS:1:DIR/good:100", -22, &["no multiple of the storage's blocks of 512 bytes", "1M with 512-byte sectors"]),
    row("direct format -x LS:DIR/good:100", "format", "resource index LS:DIR/good:100", -22, &["no multiple of the storage's blocks of 512 bytes", "1M with 512-byte sectors"]),
    row("direct lookup -x LS:DIR/index:0 -e R", "lookup", "resource index LS:DIR/index:0, entry R", -2, &["no resource R", "direct dump"]),
    row("direct update -x LS:DIR/index:0 -e R", "update", "resource index LS:DIR/index:0, entry R", -22, &["offset of the resource is missing", "-e NAME:OFFSET"]),
    row("direct lookup -x LS:DIR:0 -e R", "lookup", "resource index LS:DIR:0, entry R", -21, &["is a directory", "name the file or device itself"]),
    row("direct release_id -s LS:1:DIR/none:0", "release_id", "lockspace LS:1:DIR/none:0", -19, &["No such file"]),
    row("direct lookup -x LS:DIR/empty:2M -e R", "lookup", "resource index LS:DIR/empty:2097152, entry R", -274, &["SANLK_RINDEX_MAGIC", "sanlock fsck"]),
    row("who LS", "who", "lockspace LS", -2, &["no daemon of this host could be asked", "give the place as PATH:OFFSET"]),
    row("who LS:R", "who", "resource LS:R", -2, &["no daemon of this host could be asked", "LOCKSPACE:RESOURCE:PATH:OFFSET"]),
    row("who DIR/empty:0", "who", "DIR/empty:0", -223, &["no lease begins there", "sanlock direct dump"]),
    row("who DIR/none:0", "who", "DIR/none:0", -2, &["No such file", "check the path"]),
    row("who DIR/short:0", "who", "DIR/short:0", -90, &["check the path and the offset"]),
    row("who LS:X:DIR/good:1M", "who", "resource LS:X:DIR/good:1048576", -227, &["\"R\"", "read_leader"]),
    row("who --json LS:X:DIR/good:1M", "who", "resource LS:X:DIR/good:1048576", -227, &["\"R\"", "read_leader"]),
    row("fsck DIR/none", "fsck", "DIR/none:0", -2, &["No such file", "check the path"]),
    row("fsck DIR/good DIR/none:1M", "fsck", "DIR/none:1048576", -2, &["No such file", "check the path"]),
    row("fsck --json DIR/none", "fsck", "DIR/none:0", -2, &["No such file", "check the path"]),
    row("fsck DIR", "fsck", "DIR:0", -21, &["EISDIR", "name the file or device itself"]),
    row("direct dump DIR/none", "dump", "DIR/none:0", -2, &["No such file", "check the path"]),
    row("direct next_free DIR/none:1M", "next_free", "DIR/none:1048576", -2, &["No such file", "check the path"]),
];

#[test]
fn every_failure_names_what_failed_on_what_why_and_what_to_do() {
    let dir = lease_dir();
    let mut wrong = Vec::new();
    for Row { line, action, object, result, words } in FAILURES {
        let (code, stdout, stderr) = run(dir.path(), line);
        let object = object.replace("DIR", dir.path().to_str().unwrap());
        let reason = stderr.lines().find(|text| text.ends_with(&format!("({result})"))).unwrap_or_default();
        let next = format!("sanlock: {action}: next: ");
        // The original's `version` is a success without a daemon (command-line.md 5.3); 1 means damage where leases are checked.
        let status = match *line {
            "client version" => 0,
            line if line.starts_with("fsck") => 3,
            _ => 1,
        };
        let good = code == Some(status)
            && reason.starts_with(&format!("sanlock: {action}: "))
            && reason.contains(&object)
            && stderr.lines().any(|text| text.starts_with(&next) && text.len() > next.len() + 20)
            && stderr.contains(&format!("'sanlock explain {result}' says more"))
            && words.iter().all(|word| stderr.contains(word));
        if !good {
            wrong.push(format!("{line} {code:?}\n{stdout}---\n{stderr}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What cannot even be tried: what was wrong, and what was expected.
#[rustfmt::skip]
const USAGE: &[(&str, &[&str])] = &[
    ("nonsense", &["nonsense", "no client action", "sanlock help"]),
    ("direct nonsense", &["nonsense", "no direct action", "sanlock help"]),
    ("spawn", &["spawn", "5.1"]),
    ("status --debug", &["--debug", "no option", "sanlock help"]),
    ("status -o", &["-o", "needs a value", "sanlock help"]),
    ("status -q 1", &["-q", "sanlock help"]),
    ("gets -h yes", &["-h yes", "expected a number"]),
    ("shutdown -f x", &["-f x", "expected a number"]),
    ("request -r LS:R:/x:0:1 -f 3", &["-f 3", "expected a number from 0 to 2"]),
    ("init", &["-s NAME", "-r"]),
    ("read", &["-s NAME", "-r"]),
    ("direct read_leader", &["-s NAME", "-r"]),
    ("direct init", &["-s NAME", "-r"]),
    ("direct acquire", &["-r LOCKSPACE:RESOURCE:PATH:OFFSET"]),
    ("direct acquire_id", &["-s NAME:HOST_ID:PATH:OFFSET"]),
    ("direct lookup", &["-x LOCKSPACE:PATH:OFFSET"]),
    ("direct write_leader", &["-F FILE"]),
    ("direct dump", &["PATH[:OFFSET[:SIZE]]"]),
    ("direct next_free", &["PATH[:OFFSET]"]),
    ("direct dump DIR/empty", &["DIR/empty:0", "no lease", "check path and offset"]),
    ("direct next_free DIR/empty", &["no lease found", "-Z and -A"]),
    ("direct init -r LS:R:/x", &["LS:R:/x", "expected LOCKSPACE:RESOURCE:PATH:OFFSET"]),
    ("direct init -s LS:0:/x:abc", &["LS:0:/x:abc", "not a number"]),
    ("direct init -s LS:0:/x:0 -Z 512 -A 2M", &["-Z and -A", "a pair that exists"]),
    ("direct init -s LS:0:/x:0 -A 3M", &["-A 3M", "use 1M, 2M, 4M or 8M"]),
    ("direct lookup -x LS", &["-x LOCKSPACE:PATH:OFFSET"]),
    ("direct lookup -x LS:/x:0 -e", &["-e", "needs a value"]),
    ("renewal", &["no lockspace given", "-s NAME"]),
    ("renewal --plot /dev/null", &["no lockspace given", "-s NAME"]),
    ("renewal -s LS --plot", &["--plot", "needs a value", "sanlock help"]),
    ("renewal -s LS --plot /dev/null --json", &["--json and --plot", "one of them"]),
    ("convert -p 1", &["no resource given (-r)"]),
    ("examine", &["-r", "-s NAME:0:PATH:0"]),
    ("who", &["Usage"]),
    ("who LS:R:/x", &["LS:R:/x", "expected LOCKSPACE:RESOURCE:PATH:OFFSET"]),
    ("who /x:0:1M", &["/x:0:1M", "without a size"]),
    ("who --watch long LS", &["--watch", "long"]),
    ("who -s LS:a:/x:0 LS:R", &["LS:a:/x:0", "not a number"]),
    ("explain nonsense", &["\"nonsense\"", "no result number or name", "'sanlock explain' lists"]),
    ("explain --all", &["--all", "Usage"]),
    ("explain -243x", &["\"-243x\" is no result number or name"]),
    ("explain -x", &["\"-x\" is no result number or name"]),
    ("explain -- -x", &["\"-x\" is no result number or name"]),
    ("top --interval 0", &["--interval", "1..=3600"]),
    ("top --sort size", &["--sort", "possible values: name, left, latency"]),
    ("demo --nonsense", &["--nonsense", "Usage"]),
    ("check --nonsense", &["--nonsense", "Usage"]),
    ("check --io-timeout 256", &["io timeout 256", "between 1 and 255"]),
    ("check /x:y", &["/x:y", "not a number", "expected decimal bytes"]),
    ("fsck", &["PATH[:OFFSET[:SIZE]]", "Usage"]),
    ("fsck /x:y", &["/x:y", "not a number", "expected decimal bytes"]),
    ("fsck --nonsense /x", &["--nonsense", "Usage"]),
    ("exporter --listen x", &["'x'", "neither an IP address with a port", "unix:PATH"]),
    ("exporter --listen unix:DIR/none/x", &["cannot listen on DIR/none/x", "No such file", "another address with --listen"]),
    ("exporter --interval 0", &["--interval", "1..=3600"]),
    ("exporter --textfile DIR/x", &["DIR/x", "must end in .prom"]),
];

#[test]
fn what_cannot_be_tried_says_what_was_expected() {
    let dir = lease_dir();
    let mut wrong = Vec::new();
    for (line, words) in USAGE {
        let (code, stdout, stderr) = run(dir.path(), line);
        let dir = dir.path().to_str().unwrap();
        // 1 means something else where storage is judged.
        let status = if line.starts_with("check") || line.starts_with("fsck") { 3 } else { 1 };
        if code != Some(status) || !words.iter().all(|word| stderr.contains(&word.replace("DIR", dir))) {
            wrong.push(format!("{line} {code:?}\n{stdout}---\n{stderr}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A lease that nobody holds needs neither a daemon nor a watch.
#[test]
fn who_reads_a_free_lease_and_an_empty_lockspace_from_the_disk() {
    let dir = lease_dir();
    let at = dir.path().to_str().unwrap();
    let (code, stdout, stderr) = run(dir.path(), "who LS:R:DIR/good:1M");
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let expected = format!(
        "resource LS:R: free, lease version 0\n  on {at}/good:1048576\nprocesses of this host are not known: "
    );
    assert!(stdout.starts_with(&expected), "{stdout}");
    for target in ["LS:0:DIR/good:0", "DIR/good", "LS -s LS:0:DIR/good:0"] {
        let (code, stdout, stderr) = run(dir.path(), &format!("who {target}"));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{target}");
        let expected = format!("lockspace LS on {at}/good:0\nno host is in it\n");
        assert!(stdout.starts_with(&expected), "{target}: {stdout}");
    }
    // The resource is looked for on the device of the lockspace that is given.
    let (code, stdout, stderr) = run(dir.path(), "who LS:R -s LS:0:DIR/good:0 --json");
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("\"offset\": 1048576") && stdout.contains("\"mode\": \"free\""), "{stdout}");
    let (code, stdout, _) = run(dir.path(), "who LS:X:DIR/good:1M --json");
    assert_eq!(code, Some(1));
    assert!(stdout.contains("\"name\": \"SANLK_LEADER_RESOURCE\""), "{stdout}");
}

#[test]
fn explain_prints_what_is_known() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (line, words) in [
        ("explain -243", &["SANLK_ACQUIRE_IDLIVE (-243)", "usual causes", "what to do"][..]),
        ("explain sanlk_hostid_busy", &["SANLK_HOSTID_BUSY (-262)", "same host id"]),
        ("explain EAGAIN 5", &["EAGAIN (-11)", "EIO (-5)"]),
        ("explain release_lver", &["(-250)", "(-252)"]),
        ("explain EXFULL", &["EXFULL (-54)", "Exchange full"]),
        ("explain -214", &["sanlock fsck PATH"]),
        ("explain -270", &["sanlock fsck PATH"]),
        ("explain 0", &["success"]),
        ("explain", &["-243", "SANLK_RINDEX_DIFF", "EAGAIN"]),
        ("explain --help", &["CODE|NAME"]),
    ] {
        let (code, stdout, stderr) = run(dir.path(), line);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{line}");
        assert!(words.iter().all(|word| stdout.contains(word)), "{line}: {stdout}");
    }
    let (code, stdout, stderr) = run(dir.path(), "explain -5 -200");
    assert_eq!(code, Some(1));
    assert!(stdout.contains("EIO (-5)") && stderr.contains("\"-200\""), "{stdout}{stderr}");
}

/// libsanlock's clients cut an address to 106 bytes: they would find nobody at a longer one, which the kernel has room for.
#[test]
fn a_socket_that_clients_do_not_find_is_not_made() {
    const SOCKET: &str = "/sanlock.sock";
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    let run_dir = format!("{at}/{}", "r".repeat(107 - SOCKET.len() - at.len() - 1));
    let output = Command::new(env!("CARGO_BIN_EXE_sanlock"))
        .args(["daemon", "-D", "-w", "0", "-e", "test", "-U", &nix::unistd::geteuid().to_string()])
        .args(["-G", &nix::unistd::getegid().to_string()])
        .env("SANLOCK_RUN_DIR", &run_dir)
        .env("SANLOCK_PRIVILEGED", "0")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("ENAMETOOLONG") || text.contains("File name too long"), "{text}");
    assert!(text.contains("more than 106 bytes is too long for its clients"), "{text}");
    assert!(!Path::new(&format!("{run_dir}{SOCKET}")).exists());
}

/// A daemon that cannot start: the reason with the object, and the next step; in the background as in the foreground.
#[test]
fn a_daemon_that_cannot_start_says_why_and_what_to_do() {
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let user = nix::unistd::User::from_uid(user).unwrap().unwrap().name;
    let group = nix::unistd::Group::from_gid(group).unwrap().unwrap().name;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for made in ["pid/sanlock.pid", "socket/sanlock.sock/x", "locked"] {
        std::fs::create_dir_all(dir.path().join(made)).unwrap();
    }
    let pid_file = dir.path().join("locked/sanlock.pid");
    let _held = sanlock_sys::pidfile::PidFile::lock(&pid_file).unwrap();
    let at = dir.path().to_str().unwrap();
    let rows: [(&str, &str, &[&str], &[&str]); 5] = [
        ("run", "-U nobody-has-this-name", &["user 'nobody-has-this-name' not found"], &["-U and -G"]),
        ("none/run", "", &["run directory", "none/run", "No such file"], &["SANLOCK_RUN_DIR"]),
        ("pid", "", &["pid/sanlock.pid", "Is a directory"], &["check what lies there"]),
        ("locked", "", &["setlk", "locked/sanlock.pid"], &["another daemon runs", "SANLOCK_RUN_DIR"]),
        ("socket", "", &["make the socket", "socket/sanlock.sock"], &["check what lies there"]),
    ];
    for foreground in [false, true] {
        for (run_dir, options, reason, step) in rows {
            let output = Command::new(env!("CARGO_BIN_EXE_sanlock"))
                .args(["daemon", "-w", "0", "-e", "test", "-U", &user, "-G", &group])
                .args(options.split_whitespace())
                .args(foreground.then_some("-D"))
                .env("SANLOCK_RUN_DIR", format!("{at}/{run_dir}"))
                .env("SANLOCK_PRIVILEGED", "0")
                .output()
                .unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let next = lines.iter().position(|line| line.starts_with("sanlock: daemon: next: "));
            let next = next.unwrap_or_else(|| panic!("{run_dir} {options}: no next step: {text}"));
            assert_eq!(output.status.code(), Some(1), "{run_dir} {options}: {text}");
            // In the foreground the reason is a line of the log, on stderr too.
            assert!(reason.iter().all(|word| lines[next - 1].contains(word)), "{run_dir} {options}: {text}");
            assert!(step.iter().all(|word| lines[next].contains(word)), "{run_dir} {options}: {text}");
        }
    }
}

/// A daemon is at work in the run directory, and keeps records there, as its user. Another one that is started for another user is refused,
/// before it has taken the directory away.
#[test]
fn a_daemon_that_is_refused_leaves_the_run_directory_to_its_user() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let _held = sanlock_sys::pidfile::PidFile::lock(&dir.path().join("sanlock.pid")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sanlock"))
        .args(["daemon", "-D", "-w", "0", "-e", "test", "-U", "nobody", "-G", "nogroup"])
        .env("SANLOCK_RUN_DIR", dir.path())
        .env("SANLOCK_PRIVILEGED", "0")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("lockfile setlk error"), "{text}");
    let owner = std::fs::metadata(dir.path()).unwrap();
    let (user, group) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    assert_eq!((owner.uid(), owner.gid()), (user, group));
}

/// The program's own sources, each without its unit tests.
fn sources(dir: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if !path.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            let name = path.strip_prefix(concat!(env!("CARGO_MANIFEST_DIR"), "/src/")).unwrap();
            found.push((name.display().to_string(), code));
        }
    }
}

/// An error has no way to people but `output.rs`, which puts reason and next step beside its number, and the unit tests of
/// `client/explain.rs` and `direct/report.rs` go through all numbers there.
#[test]
fn no_error_is_printed_but_by_what_explains_it() {
    let mut files = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut files);
    assert!(files.len() > 60, "{}", files.len());
    // What is written, and the files that may, each with a reason.
    let allowed: [(&str, &[&str]); 5] = [
        ("eprint", &[]),
        ("process::exit", &[]),
        // Two of them ask whether it is a terminal.
        ("stderr()", &["output.rs", "progress/mod.rs", "who/gather.rs"]),
        (
            "print_error(",
            &[
                "output.rs",
                "client/explain.rs",
                "direct/report.rs",
                // Usage errors, which say what was expected.
                "main.rs",
                // What is waited for is no error.
                "progress/mod.rs",
                // `execv failed`, as 3.8.5 prints it, and the next step behind it.
                "client/command.rs",
            ],
        ),
        (
            "failure(",
            &[
                "output.rs",
                "top.rs",
                "client/plot/mod.rs",
                "direct/write_leader.rs",
                // A resource without a name, which no daemon is asked for.
                "client/index.rs",
            ],
        ),
    ];
    let (mut wrong, mut results) = (Vec::new(), 0);
    for (name, code) in &files {
        for (word, places) in &allowed {
            let calls = code.match_indices(word).filter(|(at, _)| {
                let before = code[..*at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' && *word == "failure(")
            });
            if calls.count() > 0
                && !places.contains(&name.as_str())
                && !(name == "json.rs" && *word == "failure(")
            {
                wrong.push(format!("{name}: {word}"));
            }
        }
        // A number of a result on stdout, as 3.8.5 prints it, is explained by what follows.
        for (at, _) in code.match_indices(" done {").chain(code.match_indices(" error {")) {
            let (before, after) = code.split_at(at);
            let line = before.rsplit('\n').next().unwrap_or_default();
            let next: String = after.lines().take(8).collect();
            let explained = ["explain(", "failure(", "note(", "explain_refusal(", "status_of(0)"];
            results += usize::from(line.contains("print("));
            if line.contains("print(") && !explained.iter().any(|call| next.contains(call)) {
                wrong.push(format!("{name}: a result that nobody explains: {}", line.trim()));
            }
        }
    }
    assert!(results >= 8, "the sources were not understood: {results}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
