//! Argument vectors and what they mean. Rows marked with a golden file were recorded from 3.8.5.

use super::*;
use crate::cli::command::{DemoArgs, ExplainArgs};
use crate::cli::given::Sizes;
use crate::cli::top::{Sort, TopArgs};
use crate::cli::who::{WhoArgs, WhoTarget};
use sanlock_lease::geometry::{AlignSize, Geometry, SectorSize};
use sanlock_lease::text::ResourceSpec;
use sanlock_lease::text::strict::DumpRange;

const MIB: u64 = 1 << 20;

fn args(line: &str) -> Vec<Vec<u8>> {
    std::iter::once("sanlock").chain(line.split_whitespace()).map(|word| word.as_bytes().to_vec()).collect()
}

fn command(line: &str) -> Command {
    parse(&args(line)).unwrap_or_else(|error| panic!("{line}: {error:?}")).command
}

fn refused(line: &str) -> (String, String) {
    let error = parse(&args(line)).expect_err(line);
    assert_eq!(error.status, FAILURE, "{line}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(error.stdout), text(error.stderr))
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn ls(text: &str, host_id: u64, path: &str, offset: u64) -> LockspaceSpec {
    LockspaceSpec { name: name(text), host_id, path: path.as_bytes().to_vec(), offset }
}

fn res(lockspace: &str, resource: &str, path: &str, offset: u64) -> ResourceSpec {
    ResourceSpec {
        lockspace: name(lockspace),
        name: name(resource),
        disks: vec![DiskSpec { path: path.as_bytes().to_vec(), offset }],
        ..ResourceSpec::default()
    }
}

#[test]
fn first_words() {
    let help = Command::Help { action_missing: false };
    for (line, expected) in [
        ("", help.clone()),
        ("help", help.clone()),
        ("help whatever -q", help.clone()),
        ("--help", help.clone()),
        ("-h", help),
        ("version", Command::Version),
        ("version -x", Command::Version),
        ("-V", Command::BuildInfo { program: b"sanlock".to_vec() }),
        ("--version", Command::BuildInfo { program: b"sanlock".to_vec() }),
        ("client", Command::Help { action_missing: true }),
        ("direct", Command::Help { action_missing: true }),
        ("client version", Command::Client(ClientAction::Version)),
        ("log_dump", Command::Client(ClientAction::LogDump)),
        ("client log_dump", Command::Client(ClientAction::LogDump)),
    ] {
        assert_eq!(command(line), expected, "{line:?}");
    }
    assert_eq!(parse(&[]).unwrap().command, Command::Help { action_missing: false });
}

#[test]
fn unknown_actions() {
    for (line, stdout) in [
        ("frobnicate", "client action \"frobnicate\" is unknown\n"),
        ("client frobnicate", "client action \"frobnicate\" is unknown\n"),
        ("direct frobnicate", "direct action \"frobnicate\" is unknown\n"),
        ("direct create", "direct action \"create\" is unknown\n"),
        ("-D status", "client action \"-D\" is unknown\n"),
        ("Status", "client action \"Status\" is unknown\n"),
        ("client frobnicate -q", "client action \"frobnicate\" is unknown\n"),
    ] {
        let (found, stderr) = refused(line);
        assert_eq!(found, stdout, "{line:?}");
        assert!(stderr.ends_with(" action; 'sanlock help' lists them\n"), "{line:?}: {stderr}");
    }
}

#[test]
fn actions_of_later_releases() {
    for (kind, actions) in [("client", &CLIENT_NOT_HERE[..]), ("direct", &DIRECT_NOT_HERE)] {
        for action in actions {
            let (stdout, stderr) = refused(&format!("{kind} {action} -q"));
            assert_eq!(stdout, format!("{kind} action \"{action}\" is unknown\n"));
            assert!(stderr.contains("5.1"), "{stderr}");
        }
    }
}

#[test]
fn client_actions_without_resources() {
    use ClientAction as A;
    for (line, expected) in [
        ("status", A::Status { order: StatusOrder::Unsorted, debug: false }),
        ("status -D -o p", A::Status { order: StatusOrder::ByProcess, debug: true }),
        ("status -o sideways", A::Status { order: StatusOrder::ByLockspace, debug: false }),
        ("status -o x", A::Status { order: StatusOrder::Unsorted, debug: false }),
        ("status -o p -o s", A::Status { order: StatusOrder::ByLockspace, debug: false }),
        ("host_status", A::HostStatus { lockspace: Name::default(), debug: false }),
        ("host_status -s LS -D", A::HostStatus { lockspace: name("LS"), debug: true }),
        ("gets", A::Gets { hosts: false }),
        ("gets -h 0", A::Gets { hosts: false }),
        ("gets -h 1", A::Gets { hosts: true }),
        ("renewal -s LS --plot /a.svg", A::Renewal { lockspace: name("LS"), plot: Some("/a.svg".into()) }),
        ("renewal -s LS:1:/a:0", A::Renewal { lockspace: name("LS"), plot: None }),
        ("shutdown", A::Shutdown { force: 0, wait: 0 }),
        ("shutdown -f 1 -w 1", A::Shutdown { force: 1, wait: 1 }),
        ("shutdown -f 0x10 -w 010", A::Shutdown { force: 16, wait: 10 }),
        (
            "set_event -s LS -i 0x7d -g 010 -e 0x8000000000000000 -d 18446744073709551615",
            A::SetEvent {
                lockspace: name("LS"),
                host_id: 125,
                generation: 8,
                event: 1 << 63,
                data: u64::MAX,
            },
        ),
        ("shutdown -f 3 -w 7", A::Shutdown { force: 3, wait: 7 }),
        ("align -s LS:1:/a:1M", A::Align { disk: DiskSpec { path: b"/a".to_vec(), offset: MIB } }),
        ("add_lockspace -s LS:1:/a:0", A::AddLockspace { spec: ls("LS", 1, "/a", 0), io_timeout: None }),
        (
            "add_lockspace -s LS:1:/a:0 -o 1",
            A::AddLockspace { spec: ls("LS", 1, "/a", 0), io_timeout: Some(1) },
        ),
        (
            "add_lockspace -s LS:1:/a:0 -o 10",
            A::AddLockspace { spec: ls("LS", 1, "/a", 0), io_timeout: Some(10) },
        ),
        ("add_lockspace -s LS:1:/a:0 -o 0", A::AddLockspace { spec: ls("LS", 1, "/a", 0), io_timeout: None }),
        ("add_lockspace", A::AddLockspace { spec: LockspaceSpec::default(), io_timeout: None }),
        ("inq_lockspace -s LS:1:/a:0 -s LT", A::InqLockspace { spec: ls("LT", 1, "/a", 0) }),
        ("rem_lockspace -s LS:1:/a:16M", A::RemLockspace { spec: ls("LS", 1, "/a", 16 * MIB) }),
        ("inquire", A::Inquire { pid: NO_PID, debug: false }),
        ("inquire -p 42 -D", A::Inquire { pid: 42, debug: true }),
        // Letters that mean nothing to an action are ignored, whatever their value.
        ("log_dump -p x -L y -e z", A::LogDump),
    ] {
        assert_eq!(command(line), Command::Client(expected), "{line:?}");
    }
}

#[test]
fn client_actions_on_leases() {
    use ClientAction as A;
    let r0 = || res("LS", "R0", "/a", 0);
    let acquire = |resources| AcquireArgs { resources, ..AcquireArgs::default() };
    for (line, expected) in [
        ("acquire -r LS:R0:/a:0 -p 7", A::Acquire { pid: 7, acquire: acquire(vec![r0()]) }),
        (
            "acquire -r LS:R0:/a:0 -r LS:R0:/a:0:SH -O 1 -P 1 -n 5",
            A::Acquire {
                pid: NO_PID,
                acquire: AcquireArgs {
                    resources: vec![r0(), ResourceSpec { shared: true, ..r0() }],
                    orphan: true,
                    persistent: true,
                    num_hosts: 5,
                },
            },
        ),
        (
            "command -r LS:R0:/a:0 -c /bin/sh -c -D -r",
            A::Command {
                acquire: acquire(vec![r0()]),
                argv: ["/bin/sh", "-c", "-D", "-r"].map(|a| a.as_bytes().to_vec()).to_vec(),
            },
        ),
        ("command", A::Command { acquire: AcquireArgs::default(), argv: vec![] }),
        (
            "release -r LS:R0 -p 7",
            A::Release {
                pid: 7,
                resources: vec![ResourceSpec { disks: vec![], ..r0() }],
                lockspace: Name::default(),
                all: false,
                orphan: false,
            },
        ),
        (
            "release -s LS -O 1 -a 1 -p 7",
            A::Release { pid: 7, resources: vec![], lockspace: name("LS"), all: true, orphan: true },
        ),
    ] {
        assert_eq!(command(line), Command::Client(expected), "{line:?}");
    }
}

#[test]
fn init_and_read() {
    use ClientAction as A;
    let none = Sizes::default();
    let small = Sizes { sector: Some(SectorSize::B512), align: Some(AlignSize::M1) };
    let lockspace = |io_timeout| InitTarget::Lockspace { spec: ls("LS", 0, "/a", 0), io_timeout };
    let resource =
        |num_hosts, clear| InitTarget::Resource { spec: res("LS", "R", "/a", 0), num_hosts, clear };
    for (line, expected) in [
        ("init", A::Init { target: InitTarget::Nothing, sizes: none }),
        ("init -s LS", A::Init { target: InitTarget::Nothing, sizes: none }),
        ("init -s LS:0:/a:0", A::Init { target: lockspace(10), sizes: none }),
        ("write -s LS:0:/a:0 -o 1", A::Init { target: lockspace(1), sizes: none }),
        ("init -s LS:0:/a:0 -r LS:R:/a:0", A::Init { target: lockspace(10), sizes: none }),
        ("init -s LS -r LS:R:/a:0", A::Init { target: resource(0, false), sizes: none }),
        ("init -r LS:R:/a:0 -z 1", A::Init { target: resource(0, true), sizes: none }),
        ("init -r LS:R:/a:0 -z 0", A::Init { target: resource(0, false), sizes: none }),
        ("init -r LS:R:/a:0 -n 8", A::Init { target: resource(8, false), sizes: none }),
        ("init -r LS:R:/a:0 -m 9", A::Init { target: resource(9, false), sizes: none }),
        ("init -r LS:R:/a:0 -m 9 -n 0", A::Init { target: resource(9, false), sizes: none }),
        ("init -r LS:R:/a:0 -m 9 -n 8", A::Init { target: resource(8, false), sizes: none }),
        ("init -r LS:R:/a:0 -Z 512 -A 1M", A::Init { target: resource(0, false), sizes: small }),
        (
            "init -r LS:R:/a:0 -Z 512",
            A::Init { target: resource(0, false), sizes: Sizes { align: None, ..small } },
        ),
    ] {
        assert_eq!(command(line), Command::Client(expected), "{line:?}");
    }
    let read =
        |target, owners, debug| Command::Client(A::Read { target, sizes: Sizes::default(), owners, debug });
    assert_eq!(
        command("read -Z 512 -A 1M"),
        Command::Client(A::Read { target: ReadTarget::Nothing, sizes: small, owners: false, debug: false })
    );
    assert_eq!(command("read -s ::/a:0 -D"), read(ReadTarget::Lockspace(ls("", 0, "/a", 0)), false, true));
    assert_eq!(
        command("read -r ::/a:9M -h 1"),
        read(ReadTarget::Resource(res("", "", "/a", 9 * MIB)), true, false)
    );
}

#[test]
fn direct_actions() {
    use DirectAction as A;
    let sizes = Sizes::default();
    let range = |path: &str, offset, size| {
        Some(DumpRange { disk: DiskSpec { path: path.as_bytes().to_vec(), offset }, size })
    };
    let start = |path: &str, offset| Some(DiskSpec { path: path.as_bytes().to_vec(), offset });
    for (line, expected) in [
        ("direct init", A::Init { target: InitTarget::Nothing, sizes }),
        (
            "direct init -r LS:R:/a:0 -n 8 -m 9",
            A::Init {
                target: InitTarget::Resource { spec: res("LS", "R", "/a", 0), num_hosts: 8, clear: false },
                sizes,
            },
        ),
        (
            "direct read_leader -s LS:1:/a:0",
            A::ReadLeader { target: ReadTarget::Lockspace(ls("LS", 1, "/a", 0)), sizes, resource: false },
        ),
        (
            "direct read_leader -r LS:R:/b:0 -s LS:1:/a:0",
            A::ReadLeader { target: ReadTarget::Lockspace(ls("LS", 1, "/a", 0)), sizes, resource: true },
        ),
        ("direct read -s LS:1", A::Read { target: ReadTarget::Nothing, sizes }),
        ("direct dump", A::Dump { range: None, detail: DumpDetail::Owners, geometry: None }),
        (
            "direct dump -D",
            A::Dump { range: range("-D", 0, None), detail: DumpDetail::Owners, geometry: None },
        ),
        (
            "direct dump /a:1M:2M -f 1",
            A::Dump { range: range("/a", MIB, Some(2 * MIB)), detail: DumpDetail::Requests, geometry: None },
        ),
        (
            "direct dump /a -f 2 -Z 4096 -A 8M",
            A::Dump {
                range: range("/a", 0, None),
                detail: DumpDetail::Ballots,
                geometry: Some(Geometry::B4096_M8),
            },
        ),
        (
            "direct acquire -r LS:R:/a:0 -r LS:S:/a:1M -i 0x3 -g 5 -o 2",
            A::Acquire(DirectLease {
                resource: Some(res("LS", "R", "/a", 0)),
                host_id: Some(3),
                generation: Some(5),
                io_timeout: 2,
                sizes,
            }),
        ),
        ("direct release", A::Release(DirectLease { io_timeout: 10, ..DirectLease::default() })),
        (
            "direct acquire_id -s LS:1:/a:0 -e me",
            A::AcquireId(DirectHostId {
                lockspace: ls("LS", 1, "/a", 0),
                host_name: Some(name("me")),
                io_timeout: 10,
                sizes,
            }),
        ),
        ("direct renew_id -o 1", A::RenewId(DirectHostId { io_timeout: 1, ..DirectHostId::default() })),
        ("direct release_id -o 0", A::ReleaseId(DirectHostId { io_timeout: 10, ..DirectHostId::default() })),
        (
            "direct write_leader -s LS:1:/a:0 -F /f -f 0x1",
            A::WriteLeader(WriteLeader {
                target: ReadTarget::Lockspace(ls("LS", 1, "/a", 0)),
                file: Some(b"/f".to_vec()),
                keep_checksum: true,
                sizes,
            }),
        ),
        ("direct next_free", A::NextFree { start: None, geometry: None }),
        ("direct next_free /a:4096", A::NextFree { start: start("/a", 4096), geometry: None }),
    ] {
        assert_eq!(command(line), Command::Direct(expected), "{line:?}");
    }
    assert!(refused("direct dump /a:0x10").1.contains("offset \"0x10\" is not a number"));
    // Golden 032: the word after the action is the path, so the option's value stands alone.
    assert!(refused("direct dump -f 1").0.starts_with("unknown option 1\n"));
}

#[test]
fn sizes_check() {
    let invalid = |sector: &str, align: &str| {
        format!(
            "Invalid sector_size/align_size combination ({sector}/{align})\n\
             Use one of: 512/1M, 4096/1M, 4096/2M, 4096/4M, 4096/8M.\n"
        )
    };
    for (options, sector, align) in [
        ("-Z 512 -A 2M", "512", "2097152"), // golden 013
        ("-A 1M", "0", "1048576"),          // golden 014
        ("-Z 1024 -A 1M", "1024", "1048576"),
        ("-Z 1000", "1000", "0"), // the original takes this for "no size given"
    ] {
        let (stdout, stderr) = refused(&format!("direct init -s LS:0:/a:0 {options}"));
        assert_eq!(stdout, invalid(sector, align), "{options}");
        assert!(stderr.contains("-Z and -A"), "{options}: {stderr}");
    }
    assert!(refused("init -r LS:R:/a:0 -Z 512 -A 1m").1.contains("-A 1m is no align size"));
    for options in
        ["-Z 512 -A 1M", "-Z 4096 -A 1M", "-Z 4096 -A 2M", "-Z 4096 -A 4M", "-Z 4096 -A 8M", "-Z 512"]
    {
        command(&format!("direct init -s LS:0:/a:0 {options}"));
    }
}

#[test]
fn slips_that_the_original_swallows() {
    for (line, text) in [
        ("init -s LS:0:/a:0x100000", "-s LS:0:/a:0x100000: offset \"0x100000\" is not a number"),
        ("init -s LS:0:/a:", "-s LS:0:/a:: the offset is empty"),
        ("init -s LS:0:/a::7", "the offset is empty"),
        ("format -x LS:/a:", "-x LS:/a:: the offset is empty"),
        // What comes later has no offset of its own.
        ("format -x LS:/a: -x LT", "-x LS:/a:: the offset is empty"),
        ("init -s LS:0:/a: -s LT", "-s LS:0:/a:: the offset is empty"),
        ("init -r LS:R:/a:0 -z yes", "-z yes: expected a number: 0 for off, 1 for on"),
        ("init -r LS:R:/a:0 -n -1", "-n -1: expected a number from 0 to"),
        ("init -s LS:0:/a:0 -o 300", "-o 300: expected a number from 0 to 255"),
        ("init -s LS:0:/a:0 -o 1s", "-o 1s: expected a number"),
        ("acquire -r LS:R:/a:0 -p 99999999999", "-p 99999999999: expected a number from -1 to 2147483647"),
        ("acquire -r LS:R:/a:0 -p self", "-p self: expected a number"),
        ("gets -h yes", "-h yes: expected a number"),
        ("shutdown -f force", "-f force: expected a number"),
        ("request -f 3", "-f 3: expected a number from 0 to 2"),
        ("request -f 0x100000000", "-f 0x100000000: expected a number from 0 to 2"),
        ("set_event -e 09", "-e 09: expected a number"),
        ("set_event -i -1", "-i -1: expected a number"),
    ] {
        let (stdout, stderr) = refused(line);
        assert!(stdout.is_empty() && stderr.contains(text), "{line}: {stdout}{stderr}");
        assert!(stderr.starts_with("sanlock: ") && stderr.ends_with('\n'), "{line}: {stderr}");
    }
    let long = format!("add_lockspace -s {}:1:/a:0", "x".repeat(49));
    assert!(refused(&long).1.contains("name has 49 bytes, at most 48 are allowed"));
    // Golden 016 and 017 print the same first lines, and go on.
    let (stdout, stderr) = refused("direct init -r LS:R0:/srv/lease/res");
    assert_eq!(stdout, "resource arg parse error -1\n\n");
    assert!(
        stderr.starts_with("sanlock: -r LS:R0:/srv/lease/res: 3 fields, expected LOCKSPACE:RESOURCE"),
        "{stderr}"
    );
    let nine: String = (1..=9).map(|i| format!(" -r a:{i}:/x:0")).collect();
    assert_eq!(refused(&format!("client version{nine}")).0, "resource args over max 8\n");
}

#[test]
fn debug_lines_as_recorded() {
    // Golden 018, with the one difference that M counts for the second disk, too.
    let parsed =
        parse(&args("client version -D -s LS:1:/srv/lease/ls:1048576 -r LS:R:/a:1M:/b:2M:SH")).unwrap();
    assert_eq!(
        parsed.debug_lines,
        [
            "lockspace LS host_id 1 path /srv/lease/ls offset 1048576",
            "resource LS R num_disks 2 flags 4 lver 0",
            "resource disk /a 1048576",
            "resource disk /b 2097152",
        ]
    );
    assert_eq!(parse(&args("client version -s LS:1:/a:0 -D")).unwrap().debug_lines, [""; 0]);
    let parsed = parse(&args("client version -D -r LS:R:/a:0:0x1f")).unwrap();
    assert_eq!(parsed.debug_lines[0], "resource LS R num_disks 1 flags 1 lver 31");
}

#[test]
fn daemon_options() {
    let daemon = |line: &str| match command(line) {
        Command::Daemon(overrides) => *overrides,
        other => panic!("{other:?}"),
    };
    assert_eq!(daemon("daemon"), Overrides::default());
    let expected = Overrides {
        io_timeout_ignored: false,
        foreground: true,
        quiet_fail: Some(0),
        debug_renew: Some(1),
        renewal_history_size: Some(9),
        logfile_priority: Some(-1),
        syslog_priority: Some(7),
        uname: Some("root".to_owned()),
        gname: Some("disk".to_owned()),
        max_worker_threads: Some(20),
        kill_grace_seconds: Some(5),
        use_watchdog: Some(0),
        high_priority: Some(1),
        mlock_level: Some(2),
        use_aio: Some(0),
        set_bitmap_seconds: Some(30),
        our_host_name: Some(b"hostA".to_vec()),
    };
    let line =
        "daemon -D -Q 0 -R 1 -H 9 -L -1 -S 7 -U root -G disk -t 20 -g 5 -w 0 -h 1 -l 2 -a 0 -b 30 -e hostA";
    assert_eq!(daemon(line), expected);
    assert_eq!(daemon("daemon -a 7").use_aio, Some(1));
    // 3.8.5 has no -o for the daemon and ignores it; ours says so.
    assert_eq!(daemon("daemon -o 3"), Overrides { io_timeout_ignored: true, ..Overrides::default() });
    assert_eq!(refused("daemon -q 1").0, "unknown option: q\n");
    assert_eq!(refused("daemon -w0").0, "unknown option -w0\nspace required before option value\n");
    assert!(refused("daemon -w yes").1.contains("-w yes: expected a number: 0 for off"));
    for (line, expected) in [
        ("-g abc", "a number from 0 to 60\n"),
        ("-l -1", "a number from 0 to 2\n"),
        ("-t many", "a number from 2 to 256\n"),
        ("-H -1", "a number from 0 to 65536\n"),
        ("-L debug", "a number from -1 to 7\n"),
        ("-b x", "a number from 0 to 2147483647\n"),
    ] {
        let text = refused(&format!("daemon {line}")).1;
        assert_eq!(text, format!("sanlock: {line}: expected {expected}"));
    }
    // What is a number is for the daemon to judge.
    assert_eq!(daemon("daemon -g 61").kill_grace_seconds, Some(61));
}

#[test]
fn demo_options() {
    let demo = |line: &str| match command(line) {
        Command::Demo(args) => args,
        other => panic!("{other:?}"),
    };
    let none = DemoArgs { dir: None, quick: false, device: None, yes_overwrite: false };
    assert_eq!(demo("demo"), none);
    assert_eq!(
        demo("demo --quick --dir /x"),
        DemoArgs { dir: Some("/x".into()), quick: true, ..none.clone() }
    );
    assert_eq!(
        demo("demo --device /dev/x --yes-overwrite"),
        DemoArgs { device: Some("/dev/x".into()), yes_overwrite: true, ..none }
    );
    assert!(refused("demo --frobnicate").1.contains("--frobnicate"));
    let help = parse(&args("demo --help")).unwrap_err();
    assert_eq!(help.status, SUCCESS);
    assert!(String::from_utf8(help.stdout).unwrap().contains("--yes-overwrite"));
}

#[test]
fn explain_options() {
    let explain = |codes: &[&str]| {
        Command::Explain(ExplainArgs { codes: codes.iter().map(|&code| code.to_owned()).collect() })
    };
    assert_eq!(command("explain"), explain(&[]));
    assert_eq!(command("explain -243"), explain(&["-243"]));
    assert_eq!(command("explain 243 EAGAIN -5"), explain(&["243", "EAGAIN", "-5"]));
    assert!(refused("explain --all").1.contains("--all"));
    // A slip in a number is none of an option.
    assert_eq!(command("explain -243x -x -5"), explain(&["-243x", "-x", "-5"]));
    assert_eq!(command("explain -- -x"), explain(&["-x"]));
    assert_eq!(parse(&args("explain -h")).unwrap_err().status, SUCCESS);
    // Like every word that is no command, it stays an unknown action elsewhere.
    assert_eq!(refused("client explain -243").0, "client action \"explain\" is unknown\n");
}

#[test]
fn top_options() {
    let top = TopArgs { lockspace: None, interval: 2, sort: Sort::Name, once: false };
    assert_eq!(command("top"), Command::Top(top.clone()));
    let other = TopArgs { lockspace: Some("LS".to_owned()), interval: 9, sort: Sort::Left, once: true };
    assert_eq!(command("top --interval 9 --sort left --once LS"), Command::Top(other));
}

#[test]
fn json_is_known_to_the_actions_that_show_something() {
    let clients = ["status", "host_status", "gets", "renewal -s LS", "inquire -p 1", "read -s LS:1:/a:0"];
    let directs = ["direct read_leader -s LS:1:/a:0", "direct read -r LS:R:/a:0", "direct dump /a"];
    for line in clients.iter().chain(&directs) {
        let parsed = parse(&args(&format!("{line} --json"))).unwrap();
        assert_eq!((parsed.command, parsed.json), (command(line), true), "{line}");
        assert!(!parse(&args(line)).unwrap().json, "{line}");
    }
    for line in ["add_lockspace --json", "direct init --json", "log_dump --json", "daemon --json"] {
        assert_eq!(refused(line).0, "unknown option --json\nspace required before option value\n", "{line}");
    }
}

#[test]
fn who_options() {
    let plain = |target| WhoArgs { target, lockspace: None, watch: None, json: false };
    let who = |args| Command::Who(Box::new(args));
    let place = |path: &str, offset| DiskSpec { path: path.as_bytes().to_vec(), offset };
    assert_eq!(command("who LS"), who(plain(WhoTarget::Lockspace(name("LS")))));
    assert_eq!(command("who LS:R:/a:1M"), who(plain(WhoTarget::Resource(res("LS", "R", "/a", MIB)))));
    let named = ResourceSpec { lockspace: name("LS"), name: name("R"), ..ResourceSpec::default() };
    assert_eq!(command("who LS:R"), who(plain(WhoTarget::Resource(named.clone()))));
    assert_eq!(command("who /a:1M"), who(plain(WhoTarget::Place(place("/a", MIB)))));
    assert_eq!(command("who ./a"), who(plain(WhoTarget::Place(place("./a", 0)))));
    assert_eq!(
        command("who --json LS:R -s LS:0:/ls:2M --watch 5"),
        who(WhoArgs {
            target: WhoTarget::Resource(named),
            lockspace: Some(ls("LS", 0, "/ls", 2 * MIB)),
            watch: Some(5),
            json: true,
        })
    );
    for line in ["who", "who a b", "who LS:R:/a", "who /a:0:1M", "who --watch -1 LS", "who -s LS"] {
        assert!(refused(line).0.is_empty(), "{line}");
    }
}

#[test]
fn resource_indexes() {
    let index = |path: &str, offset| RindexSpec {
        lockspace: name("LS"),
        disk: DiskSpec { path: path.as_bytes().to_vec(), offset },
    };
    let entry = |text, offset| RentrySpec { name: name(text), offset };
    let rx = || IndexArgs { index: index("/rx", MIB), ..IndexArgs::default() };
    let sizes = Sizes { sector: Some(SectorSize::B4096), align: Some(AlignSize::M8) };
    for (line, action, args) in [
        ("format -x LS:/rx:1M", IndexAction::Format, rx()),
        ("format -x LS:/rx:1M -Z 4096 -A 8M", IndexAction::Format, IndexArgs { sizes, ..rx() }),
        ("create -x LS:/rx:1M -e r", IndexAction::Create, IndexArgs { entry: entry("r", 0), ..rx() }),
        ("create -x LS:/rx:1M -n 8", IndexAction::Create, IndexArgs { num_hosts: 8, ..rx() }),
        (
            "delete -x LS:/rx:1M -e r:5M",
            IndexAction::Delete,
            IndexArgs { entry: entry("r", 5 * MIB), ..rx() },
        ),
        ("lookup -x LS:/rx:1M -e :5M", IndexAction::Lookup, IndexArgs { entry: entry("", 5 * MIB), ..rx() }),
        ("lookup", IndexAction::Lookup, IndexArgs::default()),
        (
            "update -x LS:/rx:1M -e r:5M -z 1",
            IndexAction::Update,
            IndexArgs { entry: entry("r", 5 * MIB), clear: true, ..rx() },
        ),
        ("update -x LS:/rx:1M -z 0", IndexAction::Update, IndexArgs { clear: true, ..rx() }),
        ("rebuild -x LS:/rx:1M", IndexAction::Rebuild, rx()),
    ] {
        let expected = Command::Client(ClientAction::Index { action, args: args.clone() });
        assert_eq!(command(&format!("client {line}")), expected, "{line}");
        let offline = match action {
            IndexAction::Format => OfflineIndexAction::Format,
            IndexAction::Lookup => OfflineIndexAction::Lookup,
            IndexAction::Update => OfflineIndexAction::Update,
            IndexAction::Rebuild => OfflineIndexAction::Rebuild,
            IndexAction::Create | IndexAction::Delete => continue,
        };
        let expected = Command::Direct(DirectAction::Index { action: offline, args });
        assert_eq!(command(&format!("direct {line}")), expected, "{line}");
    }
    assert!(refused("client lookup -x LS:/rx:1X").1.contains("-x LS:/rx:1X"));
    assert!(refused("client lookup -x LS:/rx:1X -x LS").1.contains("-x LS:/rx:1X"));
    assert!(refused("client lookup -e r:1X").1.contains("-e r:1X"));
    assert_eq!(refused("direct delete").0, "direct action \"delete\" is unknown\n");
}

/// A later string keeps what it leaves out of an earlier one, as with `-s`.
#[test]
fn a_later_index_is_laid_over_an_earlier_one() {
    for (line, lockspace, path, offset) in [
        ("-x LS:/ix:8M -x LS:/ix", "LS", "/ix", 8 * MIB),
        ("-x LS:/ix:8M -x LT", "LT", "/ix", 8 * MIB),
        ("-x LS:/ix:8M -x LT:/iy", "LT", "/iy", 8 * MIB),
        ("-x LS:/ix:8M -x LT:/iy:0", "LT", "/iy", 0),
        ("-x LS -x LT:/iy:1M", "LT", "/iy", MIB),
        (r"-x LS:/ix:8M -x L\:T", r"L\:T", "/ix", 8 * MIB),
        (r"-x LS:/ix:8M -x LT:/a\:b", "LT", "/a:b", 8 * MIB),
        ("-x LS:/ix:8M -x LT::", "LT", "", 0),
    ] {
        let Command::Client(ClientAction::Index { args: found, .. }) = command(&format!("lookup {line}"))
        else {
            panic!("{line}")
        };
        let disk = DiskSpec { path: path.as_bytes().to_vec(), offset };
        assert_eq!(found.index, RindexSpec { lockspace: name(lockspace), disk }, "{line}");
        // What is to be formatted is found in the same way, and has an offset.
        let offline = parse(&args(&format!("direct format {line}")));
        assert_eq!(offline.is_ok(), !line.ends_with("::"), "{line}");
    }
}

#[test]
fn a_lockspace_with_a_path_is_examined_before_a_resource() {
    let examine = |target| Command::Client(ClientAction::Examine { target });
    for (line, target) in [
        ("-s LS:1:/a:0 -r LS:R:/b:0", ReadTarget::Lockspace(ls("LS", 1, "/a", 0))),
        ("-r LS:R:/b:0 -s LS:1:/a:0", ReadTarget::Lockspace(ls("LS", 1, "/a", 0))),
        ("-s LS -r LS:R:/b:0", ReadTarget::Resource(res("LS", "R", "/b", 0))),
        ("-s LS", ReadTarget::Nothing),
    ] {
        assert_eq!(command(&format!("examine {line}")), examine(target), "{line}");
    }
}
