//! What the scripts that run the tests do when something is wrong.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use sanlock_manual::repository;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

const JUDGE: &str = "tests/vm/src/judge.rs";
const CHECKS: &str = "tests/conformance/src/mixed/checks.rs";
const KILLED: &str = "tests/crash_daemon/main.rs";

/// What is never forgiven: where it comes from, how it begins there, and how it goes on.
const VIOLATIONS: [(&str, &str, &str); 34] = [
    ("tests/conformance/src/mixed/client.rs", "OVERLAP: ", "ours1-2 (pid 7) was granted R1 Exclusive"),
    ("tests/conformance/src/bin/contender.rs", "DOUBLE OWNER: ", "orig-1: version 7 after Some(7)"),
    ("tests/conformance/src/contention.rs", "DOUBLE OWNER: ", "every grant is in the log"),
    ("tests/conformance/tests/libvirt.rs", "DOUBLE OWNER: ", "`virsh create` ended with 0"),
    ("tests/conformance/tests/interop_migration.rs", "DOUBLE OWNER: ", "ours joined 9.1s after the crash"),
    (
        "tests/conformance/tests/commands/rem_lockspace.rs",
        "DOUBLE OWNER: ",
        "granted in a lockspace being removed: `client command` ended with 0",
    ),
    (CHECKS, "DOUBLE OWNER: ", "ours1-2 has R1 under version 7"),
    (CHECKS, "OWNERS: ", "ours1-2 holds Some(Held), but [], after Entry"),
    (CHECKS, "VERSION: ", "ours1-2 asked for the one after 5 and has 9, after Entry"),
    (CHECKS, "ORPHAN LOST: ", "ours1-2 shares R1, but Entry"),
    (CHECKS, "VALUE LOST: ", "ours1-2 reads 4, but Entry"),
    (CHECKS, "VALUE TORN ", "at word 5: ours1-2"),
    ("tests/conformance/src/dead_owner.rs", "granted ", "31 s after the last renewal of its owner"),
    ("tests/conformance/src/dead_owner.rs", "host 2 was reported dead within 20 s", ": [3, 4, 5]"),
    (JUDGE, "OVERLAP: ", "the first host wrote after the second one had the lease"),
    (JUDGE, "last write after the take-over", ""),
    (JUDGE, "the second host got a lease that is held", ""),
    (JUDGE, "the reset came later than promised", " to other hosts"),
    (JUDGE, "the holder wrote longer than promised", " to other hosts"),
    ("tests/vm/src/solo.rs", "alive ", "84.2 s after the last renewal, promised: 84"),
    ("tests/vm/src/solo.rs", "the holder goes on after the machine slept", ": slept from 1 to 2"),
    ("tests/conformance/tests/wdmd/expiry.rs", "expiry ", "12: fires at 23.1s, promised 22s"),
    ("tests/conformance/tests/wdmd/expiry.rs", "expiry ", "12: last ping at 18.1s, allowed until 17s"),
    ("tests/conformance/tests/interop_wdmd.rs", "fires at ", "90.1s, promised 88s"),
    ("tests/conformance/tests/reset.rs", "fires at ", "90.1s, answered at 20s"),
    (
        KILLED,
        "DOUBLE OWNER: ",
        "convert to exclusive, killed at Write(2): granted 3 s after the last renewal of its owner",
    ),
    (KILLED, "DOUBLE OWNER: ", "join, killed at Write(2): generation 1 after 1"),
    ("tests/crash_daemon/operations.rs", "VALUE TORN: ", "release with a value, killed at Write(2)"),
    ("tests/crash_daemon/operations.rs", "VALUE LOST: ", "release with a value, killed at Write(2)"),
    ("daemon/tests/life/main.rs", "DOUBLE OWNER: ", "granted 3 s after the last renewal of its owner"),
    ("daemon/tests/life/failed_writes.rs", "DOUBLE OWNER: ", "the lease was given while a write could land"),
    ("daemon/tests/life/index.rs", "DOUBLE OWNER: ", "left: true, format: -11"),
    ("daemon/tests/life/late_format.rs", "DOUBLE OWNER: ", "taken where a format may still land: [0, -11]"),
    (
        "daemon/tests/life/troubled_disks.rs",
        "DOUBLE OWNER: ",
        "granted 3 s after the last renewal of its owner",
    ),
];

fn forgivable(output: &[u8]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), output).unwrap();
    Command::new(repository("tests/forgivable")).arg(file.path()).output().unwrap()
}

#[track_caller]
fn assert_not_forgiven(text: &str) {
    // Among other things, some of which are no text.
    let output = [b"running 1 test\n\xff\0\n", text.as_bytes(), b"\n\xfe\ntest result: FAILED\n"].concat();
    let judged = forgivable(&output);
    assert!(!judged.status.success(), "forgiven: {text}");
    assert!(String::from_utf8_lossy(&judged.stdout).contains(": not repeated\n"), "no reason: {text}");
    assert_eq!(String::from_utf8_lossy(&judged.stderr), "", "{text}");
}

/// What an assertion says that fails.
fn said(assertion: impl FnOnce() + std::panic::UnwindSafe) -> String {
    *std::panic::catch_unwind(assertion).unwrap_err().downcast().unwrap()
}

#[test]
fn no_violation_is_forgiven() {
    for (source, begins, goes_on) in VIOLATIONS {
        let text = fs::read_to_string(repository(source)).unwrap();
        assert!(text.contains(&format!("\"{begins}")), "{source} says {begins:?} no more");
        // The words between the values are the source's, too.
        for words in ["after the last renewal", "asked for the one after", "promised", "allowed until"] {
            assert!(!goes_on.contains(words) || text.contains(words), "{source} says {words:?} no more");
        }
        assert_not_forgiven(&format!("{begins}{goes_on}"));
    }
    assert_not_forgiven("| c-kill-daemon | 1.0 | FAILED: no SIGKILL; take-over before reset |");
}

#[test]
fn a_grant_in_the_place_of_a_refusal_is_not_forgiven() {
    assert_not_forgiven(&said(|| assert_eq!(0, -243, "round 3")));
    assert_not_forgiven(&said(|| assert_eq!(0, -243)).replace('\n', "\n    "));
    assert_not_forgiven(&said(|| assert_eq!(Some(0), Some(-203), "no watchdog")));
    assert_not_forgiven(&said(|| assert_eq!((0, 4), (-17, 4), "held by another process")));
    assert_not_forgiven(&said(|| assert_eq!(0, -28, "nothing is granted in a failed lockspace")));
    assert_not_forgiven(&said(|| assert_eq!([0, -11], [-11, -11], "a format may still land")));
    assert_not_forgiven(&said(|| assert_eq!("acquire done 0\n", "acquire done -117\n")));
    assert_not_forgiven(&said(|| {
        let granted: Result<(), _> = "0".parse::<i32>().map(drop);
        let _refusal = granted.unwrap_err();
    }));
    for text in [
        "host 2 is refused: expected -243, got 0",
        "host 2 wants it alone: expected -11, got 0",
        "a lockspace that is not joined: expected Code(-28), got Code(0)",
        "no orphan asked for: expected -117, got 0",
        "AssertionError: held elsewhere: expected error -243, got None",
        "AssertionError: shared elsewhere: expected error 11, got None",
        "held: expected Code(-17), got Code(0)",
        "an earlier one: expected (-273, (9, 2)), got (0, (9, 2))",
        "  reply\n    original: result -243 (command 7, flags 0x0)\n    ours: result 0 (command 7, flags 0x0)",
    ] {
        assert_not_forgiven(text);
    }
}

#[test]
fn what_a_slow_machine_brings_about_is_forgiven() {
    let refused = said(|| assert_eq!(-243, 0, "and it can be used like any other"));
    let in_time = said(|| assert_eq!(0, -202, "it hangs"));
    let other = said(|| assert_eq!(0, 60, "3.8.5 refuses the lockspace when this is not 60"));
    for text in [
        refused.as_str(),
        &in_time,
        &other,
        "granted only 108s after the crash",
        "host 2 gets it: expected 0, got -243",
        "host 1 has seen host 2: expected -202, got 0",
        "UNEXPECTED: ours1-2: acquire gave -202 at 17, holding []",
        "| c-kill-daemon | 1.0 | FAILED: no take-over; reset before SIGKILL |",
        "    original: result 0 (command 7, flags 0x0)\n    ours: result -243 (command 7, flags 0x0)",
        "    original: result -28 (command 7, flags 0x0)\n    ours: result 0 (command 7, flags 0x0)",
        "    original: result -11 (command 16, flags 0x0)\n    ours: result 0 (command 16, flags 0x0)",
        "AssertionError: another event while one is set: expected error 16, got None",
        "",
    ] {
        let judged = forgivable(text.as_bytes());
        assert!(judged.status.success(), "{text}: {}", String::from_utf8_lossy(&judged.stdout));
        assert_eq!(String::from_utf8_lossy(&judged.stderr), "", "{text}");
    }
    let nothing = Command::new(repository("tests/forgivable")).arg("/nonexistent").output().unwrap();
    assert!(!nothing.status.success(), "an output that cannot be read shows nothing");
}

/// Plays cargo, which has one test program, of a package: `NAMES` are the argument of `tests/only`.
fn only(names: &str, package: &str, program: &str) -> Output {
    let cargo =
        r#"runner=$(env | sed -n 's/^CARGO_TARGET_.*_RUNNER=//p'); CARGO_PKG_NAME=$1 $runner "$2" "$3""#;
    let mut command = Command::new(repository("tests/only"));
    command.args([names, "sh", "-c", cargo, "cargo", package, program, "it runs"]).output().unwrap()
}

#[test]
fn a_phase_without_tests_fails() {
    let dir = tempfile::tempdir().unwrap();
    // As cargo names them.
    let program = dir.path().join("fsck-0123456789abcdef");
    std::os::unix::fs::symlink("/bin/echo", &program).unwrap();
    let program = program.to_str().unwrap();
    for (names, package, runs) in [
        ("sanlock-sim", "sanlock-sim", true),
        ("sanlock-sim", "sanlock-simulator", false),
        ("sanlock-sim", "sanlock", false),
        ("/sanlock-sim,life", "sanlock", true),
        ("/sanlock-sim,fsck", "sanlock", false),
        ("/sanlock-sim,fsck", "sanlock-sim", false),
    ] {
        let output = only(names, package, program);
        let (said, complaint) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.success(), runs, "{names} of {package}: {complaint}");
        assert_eq!(said, if runs { "it runs\n" } else { "" }, "{names} of {package}");
        assert_eq!(complaint.contains("nothing was tested"), !runs, "{names} of {package}: {complaint}");
    }
    let failed = only("sanlock-sim", "sanlock-sim", "/bin/false");
    assert_eq!(failed.status.code(), Some(1), "a test that fails has the last word");
    assert_eq!(String::from_utf8_lossy(&failed.stderr), "");
}

/// `tests/sources` of what the compiler has read, these files of the repository, and `profile`.
fn sources(files: &[&str], profile: &str) -> Output {
    let dependencies = tempfile::NamedTempFile::new().unwrap();
    let files: Vec<_> =
        files.iter().map(|file| repository(file).canonicalize().unwrap().display().to_string()).collect();
    fs::write(dependencies.path(), format!("/out/sanlock-sim: {} {profile}\n", files.join(" "))).unwrap();
    Command::new(repository("tests/sources"))
        .arg(dependencies.path())
        .arg("/out/seen.profdata")
        .output()
        .unwrap()
}

#[test]
fn a_campaign_goes_on_after_a_new_build_of_the_same_sources() {
    let files = ["lease/src/lib.rs", "sys/src/lib.rs", "tests/sim/src/lib.rs"];
    for profile in ["/out/seen.profdata", ""] {
        let output = sources(&files, profile);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "lease/src/lib.rs\ntests/sim/src/lib.rs\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
    let another = sources(&files, "/out/another");
    assert_eq!(
        String::from_utf8_lossy(&another.stdout),
        "/out/another\nlease/src/lib.rs\ntests/sim/src/lib.rs\n",
        "what is not known to change no event is a source"
    );
}

#[test]
fn a_source_that_names_the_system_is_tied_to_it() {
    let asks = "daemon/src/crew.rs";
    let files = [asks, "sys/src/lib.rs"];
    assert!(fs::read_to_string(repository(asks)).unwrap().contains("sanlock_sys"), "take another example");
    let output = sources(&files, "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "daemon/src/crew.rs\nsys/src/lib.rs\n");
    assert!(!sources(&[], "").status.success(), "a campaign of nothing");
}

#[test]
fn the_shell_understands_the_scripts() {
    for script in ["run", "long", "of", "only", "forgivable", "sources"] {
        let output =
            Command::new("sh").arg("-n").arg(repository(&format!("tests/{script}"))).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A shell that a signal ends carries out no EXIT trap, and what it has in the background would go on.
#[test]
fn an_interrupt_ends_what_a_script_has_started_and_cleans_up() {
    let text = "set -eu; trap 'echo cleaned' EXIT; . tests/interrupted; (sh -c 'echo $$; exec sleep 60'; echo goes on) & wait $!";
    for signal in ["INT", "TERM", "HUP"] {
        // A shell cannot trap what whoever started the tests has it ignore, as an interrupt in the background.
        let mut script = Command::new("env");
        script
            .args(["--default-signal=INT,TERM,HUP", "sh", "-c", text])
            .current_dir(repository("."))
            .stdout(Stdio::piped());
        let mut script = script.spawn().unwrap();
        let mut output = BufReader::new(script.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        let kill = format!("kill -{signal} {}", script.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        // Until nobody has it open any more.
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!((rest.as_str(), script.wait().unwrap().code()), ("cleaned\n", Some(130)), "{signal}");
    }
}
