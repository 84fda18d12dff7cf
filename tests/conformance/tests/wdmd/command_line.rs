//! Options and the short commands: help, version, dump, probe (wdmd.md 3.1, 4.8).

use sanlock_conformance::{Machine, Program, Table};

#[test]
fn the_version_is_one_line() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    for option in ["-V", "--version"] {
        let output = machine.run(&[option]).success();
        assert_eq!(output.stdout.lines().count(), 1, "{output}");
        assert!(output.stdout.starts_with("wdmd version "), "{output}");
        assert!(output.stdout.ends_with('\n'), "{output}");
        let number = output.stdout.trim_start_matches("wdmd version ").trim_end();
        assert_eq!(number.split('.').count(), 3, "{output}");
    }
}

#[test]
fn help_names_every_option_and_the_values_given_before_it() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let mut table = Table::default();
    for option in ["-h", "--help"] {
        let output = machine.run(&[option]).success();
        for letter in ["-h", "-p", "-d", "-V", "-D", "-H", "-G", "-S", "-s", "-k", "-w"] {
            let named = output.stdout.split_whitespace().any(|word| word.trim_end_matches(',') == letter);
            table.expect(&format!("{option} names {letter}"), named, true);
        }
    }
    let other = machine.run(&["-k", "987", "-s", "/some/dir", "-h"]).success();
    table.expect("current limit of scripts", other.stdout.contains("987"), true);
    table.expect("current directory", other.stdout.contains("/some/dir"), true);
    table.expect("nothing was touched", machine.devices().calls(), vec![]);
}

#[test]
fn an_unknown_option_is_refused_by_ours_and_starts_the_original() {
    let Some(program) = Program::wdmd_under_test() else { return };
    for options in [vec!["-Z"], vec!["--no-such"]] {
        let machine = Machine::new(program);
        if program == Program::Reference {
            let wdmd = machine.start(&options);
            assert!(wdmd.log().contains("option"), "defect 13: it complains and goes on: {}", wdmd.log());
            continue;
        }
        let output = machine.start_unready(&options).finish();
        assert!([1, 2].contains(&output.code), "{output}");
        assert!(output.stderr.contains(options[0]), "the option is named: {output}");
        assert!(!machine.marker().exists() && machine.devices().calls().is_empty(), "{output}");
    }
}

#[test]
fn a_dump_without_a_daemon_prints_nothing() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    for option in ["-d", "--dump"] {
        let output = machine.run(&[option]);
        assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{output}");
    }
}

#[test]
fn the_dump_command_prints_what_the_daemon_says() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    for option in ["-d", "--dump"] {
        let output = machine.run(&[option]).success();
        let mut lines = output.stdout.lines();
        assert!(lines.next().unwrap().starts_with(&format!("wdmd {} socket_gid 0 ", wdmd.pid())), "{output}");
        assert!(lines.clone().any(|line| line.contains(" name listen ")), "{output}");
        assert!(lines.any(|line| line.contains(" name dump ")), "{output}");
    }
}

#[test]
fn options_reach_the_daemon() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let scripts = machine.scripts();
    let wdmd = machine.start(&["-S", "1", "-k", "7", "-s", scripts.to_str().unwrap(), "word"]);
    let dump = wdmd.dump();
    let line = dump.lines().next().unwrap();
    assert!(line.contains(" high_priority 0 "), "{line}");
    assert!(line.contains(" allow_scripts 1 kill_script_sec 7"), "{line}");
    wdmd.wait_for_log("wdmd started S1 H0 G0");
}

/// Exit status, standard output, standard error of `wdmd -p` in one situation.
struct Probe<'case> {
    options: &'case [&'case str],
    code: i32,
    stdout: &'case str,
    stderr: &'case str,
    /// Calls on the devices.
    calls: &'case [&'case str],
}

fn check(table: &mut Table, case: &str, machine: &Machine, expected: &Probe<'_>) {
    let output = machine.run(expected.options);
    table.expect(&format!("{case}: exit status"), output.code, expected.code);
    table.expect(&format!("{case}: standard output"), output.stdout.as_str(), expected.stdout);
    table.expect(&format!("{case}: standard error"), output.stderr.as_str(), expected.stderr);
    table.expect(&format!("{case}: calls"), machine.devices().calls(), owned(expected.calls));
    table.expect(&format!("{case}: marker"), machine.marker().exists(), false);
    let fires = machine.devices().reckoning("watchdog0", None).fires;
    table.expect(&format!("{case}: disarmed"), fires, None);
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

const NONE: &str = "no watchdog device, load a watchdog driver\n";

/// Ours tries what it would do for the default fire timeout, so the calls are its own; they end with the
/// device disarmed. It knows the device named with `-w` as the only one, and adds reasons to errors.
#[test]
fn the_probe_of_ours_prints_the_first_usable_device() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // Below.
    }
    let mut table = Table::default();
    for (case, faults, options, code, stdout, stderr) in [
        ("short option", "", vec!["-p"], 0, "/dev/watchdog0\n", ""),
        ("long option", "", vec!["--probe"], 0, "/dev/watchdog0\n", ""),
        ("its other name", "", vec!["-p", "-w", "/dev/watchdog"], 0, "/dev/watchdog\n", ""),
        (
            "another",
            "",
            vec!["-p", "-w", "/dev/nope"],
            1,
            "",
            "error 2 stat /dev/nope: No such file or directory\n",
        ),
        (
            "no watchdog",
            "",
            vec!["-p", "-w", "/dev/null"],
            1,
            "",
            "error 25 ioctl gettimeout /dev/null: Inappropriate ioctl",
        ),
        (
            "busy",
            "open 16\n",
            vec!["-p"],
            1,
            "",
            "error 16 open /dev/watchdog0: Device or resource busy, in use",
        ),
        (
            "no timeout",
            "gettimeout 25\n",
            vec!["-p"],
            1,
            "",
            "error 25 ioctl gettimeout /dev/watchdog0: Inappropriate",
        ),
        (
            "refuses 15",
            "max 10\n",
            vec!["-p"],
            1,
            "",
            "error 22 ioctl settimeout /dev/watchdog0: Invalid argument",
        ),
        ("refuses 60 only", "max 30\n", vec!["-p"], 0, "/dev/watchdog0\n", ""),
        ("no magic close", "options 0x8080\n", vec!["-p"], 1, "", "/dev/watchdog0"),
    ] {
        let machine = Machine::new(program);
        machine.devices().set_faults("watchdog0", faults);
        let output = machine.run(&options);
        table.expect(&format!("{case}: exit status"), output.code, code);
        table.expect(&format!("{case}: standard output"), output.stdout.as_str(), stdout);
        table.expect(
            &format!("{case}: standard error {:?}", output.stderr),
            output.stderr.contains(stderr),
            true,
        );
        let step = if options.contains(&"-w") { "give a watchdog device" } else { "as root load the driver" };
        let next = output.stderr.contains(&format!("{NONE}wdmd: next: {step}"));
        table.expect(&format!("{case}: says so, and what to do"), next, code == 1);
        table.expect(&format!("{case}: marker"), machine.marker().exists(), false);
        let fires = machine.devices().reckoning("watchdog0", None).fires;
        table.expect(&format!("{case}: disarmed"), fires, None);
    }
}

#[test]
fn the_probe_prints_the_first_usable_device() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Ours {
        return; // Above.
    }
    let mut table = Table::default();
    let taken = &["open", "gettimeout", "settimeout 60", "write V", "close"];
    let good = Probe { options: &["-p"], code: 0, stdout: "/dev/watchdog0\n", stderr: "", calls: taken };
    check(&mut table, "one device", &Machine::new(program), &good);
    check(&mut table, "long option", &Machine::new(program), &Probe { options: &["--probe"], ..good });

    let machine = Machine::new(program);
    machine.devices().write("watchdog0", "timeout", "60\n");
    let calls = &["open", "gettimeout", "write V", "close"];
    check(&mut table, "the timeout fits", &machine, &Probe { calls, ..good });

    let missing = "error 2 stat /dev/watchdog0\nerror 2 stat /dev/watchdog1\nerror 2 stat /dev/watchdog\n";
    let stderr = format!("{missing}{NONE}");
    let none = Probe { options: &["-p"], code: 1, stdout: "", stderr: &stderr, calls: &[] };
    check(&mut table, "no device", &Machine::without_device(program), &none);

    let machine = Machine::new(program);
    let options = &["-p", "-w", "/dev/nope"];
    let stderr = "error 2 stat /dev/nope\n";
    check(&mut table, "another first", &machine, &Probe { options, stderr, ..good });
    let machine = Machine::new(program);
    let options = &["-p", "-w", "/dev/null"];
    let stderr = "error 25 ioctl gettimeout /dev/null\n";
    check(&mut table, "no watchdog first", &machine, &Probe { options, stderr, ..good });
    let machine = Machine::new(program);
    let options = &["-p", "-w", "/dev/watchdog"];
    check(&mut table, "its other name", &machine, &Probe { options, stdout: "/dev/watchdog\n", ..good });

    let failing = |faults: &str| {
        let machine = Machine::without_device(program);
        machine.devices().add("watchdog0");
        machine.devices().set_faults("watchdog0", faults);
        machine
    };
    let rest = format!("error 2 stat /dev/watchdog1\nerror 2 stat /dev/watchdog\n{NONE}");
    for (case, faults, error, calls) in [
        ("busy", "open 16\n", "error 16 open /dev/watchdog0\n", &["open -16"][..]),
        (
            "no timeout",
            "gettimeout 25\n",
            "error 25 ioctl gettimeout /dev/watchdog0\n",
            &["open", "gettimeout -25", "write V", "close"],
        ),
        (
            "refuses 60",
            "max 30\n",
            "error 22 ioctl settimeout /dev/watchdog0\n",
            &["open", "gettimeout", "settimeout 60 -22", "write V", "close"],
        ),
    ] {
        let stderr = format!("{error}{rest}");
        let expected = Probe { options: &["-p"], code: 1, stdout: "", stderr: &stderr, calls };
        check(&mut table, case, &failing(faults), &expected);
    }
    let machine = failing("open 16\n");
    machine.devices().add("watchdog1");
    let stderr = "error 16 open /dev/watchdog0\n";
    let calls = &["open -16", "open", "gettimeout", "settimeout 60", "write V", "close"];
    check(&mut table, "the second", &machine, &Probe { stdout: "/dev/watchdog1\n", stderr, calls, ..good });
}

#[test]
fn a_probe_is_refused_while_a_daemon_runs() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let calls = machine.devices().calls().len();
    let output = machine.run(&["-p"]);
    assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{output}");
    assert!(output.stderr.contains("cannot probe watchdog devices while wdmd is in use.\n"), "{output}");
    let next = output.stderr.ends_with("this host will be reset: reboot it\n");
    assert_eq!(next, program == Program::Ours, "{output}");
    assert!(machine.marker().exists(), "the daemon's marker stays");
    assert_eq!(machine.devices().calls().len(), calls);
    let _ = wdmd.connect().status();
}
