//! `--trytimeout` and `--forcefire`, which 3.8.5 does not have: ours as recorded from 5.1.1, except that
//! an odd timeout of a timer with two expiries is not claimed to be taken (wdmd.md 4.9).

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sanlock_conformance::bounded::Running;
use sanlock_conformance::host::pid_of;
use sanlock_conformance::storage::text;
use sanlock_conformance::wdmd::SOON;
use sanlock_conformance::{Machine, Program, Table, bounded};

/// Lines with the date and the descriptors' numbers taken out.
fn plain(text: &str) -> Vec<String> {
    let plain = |line: &str| {
        let is_dated = line.as_bytes().get(4) == Some(&b'-') && line.as_bytes().get(13) == Some(&b':');
        let line = if is_dated { format!("DATE{}", &line[19..]) } else { line.to_owned() };
        let words: Vec<&str> = line.split(' ').collect();
        let numberless =
            words.iter().enumerate().map(|(n, word)| if n > 0 && words[n - 1] == "fd" { "N" } else { word });
        numberless.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(plain).collect()
}

fn ours() -> Option<Program> {
    // The original of 3.8.5 takes -t for an unknown option and starts as a daemon.
    Program::wdmd_under_test().filter(|program| *program == Program::Ours)
}

#[test]
fn a_timeout_that_is_taken_is_reported_step_by_step() {
    let Some(program) = ours() else { return };
    let machine = Machine::new(program);
    for args in [&["-t", "45"][..], &["--trytimeout", "45"], &["-t", "45", "-w", "/dev/watchdog0"]] {
        machine.devices().write("watchdog0", "timeout", "60\n");
        let output = machine.run(args).success();
        let expected = [
            "DATE  /dev/watchdog0 open fd N",
            "DATE  /dev/watchdog0 gettimeout 60",
            "DATE  /dev/watchdog0 settimeout 45 result 45",
            "DATE  /dev/watchdog0 gettimeout 45",
            "DATE  /dev/watchdog0 keepalive fd N result 0",
            "DATE  /dev/watchdog0 disarm write V fd N result 0",
            "DATE  /dev/watchdog0 close fd N result 0",
        ];
        assert_eq!(plain(&output.stdout), expected, "{output}");
        assert_eq!(output.stderr, "");
        assert_eq!(machine.devices().reckoning("watchdog0", None).fires, None);
        assert!(!machine.marker().exists());
    }
}

#[test]
fn a_timeout_that_no_device_takes_is_refused() {
    let Some(program) = ours() else { return };
    let machine = Machine::without_device(program);
    for device in ["watchdog0", "watchdog1"] {
        machine.devices().add(device);
        machine.devices().set_faults(device, "max 100\n");
    }
    let output = machine.run(&["-t", "1000000"]);
    assert_eq!(output.code, 1, "{output}");
    let mut expected = Vec::new();
    for device in ["/dev/watchdog0", "/dev/watchdog1"] {
        expected.push(format!("DATE  {device} open fd N"));
        expected.push(format!("DATE  {device} gettimeout 30"));
        expected.push(format!("DATE  {device} disarm write V fd N result -1"));
        expected.push(format!("DATE  {device} close fd N result 0"));
    }
    assert_eq!(plain(&output.stdout), expected, "{output}");
    let errors = "/dev/watchdog0 settimeout 1000000 error 22: Invalid argument\n\
                  /dev/watchdog1 settimeout 1000000 error 22: Invalid argument\n\
                  /dev/watchdog stat error 2: No such file or directory\n\
                  no watchdog device, load a watchdog driver\n\
                  wdmd: next: as root load the driver of this machine's watchdog";
    assert!(output.stderr.starts_with(errors), "{output}");
}

#[test]
fn try_timeout_keeps_to_the_rules_of_the_probe() {
    let Some(program) = ours() else { return };
    let mut table = Table::default();
    let machine = Machine::new(program);
    let zero = machine.run(&["-t", "0"]).success();
    table.expect("-t 0 is the probe", zero.stdout.as_str(), "/dev/watchdog0\n");
    let alone = machine.run(&["-F"]);
    let said = "Use force fire (-F) with a timeout (-t).\n";
    table.expect("-F alone", (alone.code, alone.stderr.as_str()), (1, said));

    let wdmd = machine.start(&[]);
    let calls = machine.devices().calls().len();
    let refused = machine.run(&["-t", "30"]);
    table.expect("while a daemon runs", refused.code, 1);
    let said = "cannot probe watchdog devices while wdmd is in use.\nwdmd: next: 'wdmd -d' asks the daemon";
    table.expect("while a daemon runs", refused.stderr.starts_with(said), true);
    table.expect("no device is touched", machine.devices().calls().len(), calls);
    drop(wdmd);

    let machine = Machine::new(program);
    machine.devices().write("watchdog0", "nowayout", "1\n");
    table.expect("nowayout", machine.run(&["-t", "30"]).code, 1);
    table.expect("no device is touched", machine.devices().calls(), vec![]);

    let machine = Machine::new(program);
    machine.devices().write("watchdog0", "identity", "iTCO_wdt\n");
    table.expect("even timeout with two expiries", machine.run(&["-t", "30"]).code, 0);
    table.expect("set to half", machine.devices().timeout("watchdog0"), 15);
    table.expect("odd timeout with two expiries", machine.run(&["-t", "31"]).code, 1);
}

#[test]
fn a_device_that_does_not_fire_is_found_out() {
    let Some(program) = ours() else { return };
    let machine = Machine::new(program);
    let output = machine.run(&["-t", "2", "-F"]);
    let lines = plain(&output.stdout);
    assert!(lines.contains(&"DATE  waiting for watchdog to reset machine:".to_owned()), "{output}");
    assert!(lines.contains(&"DATE  1".to_owned()) && lines.contains(&"DATE  2".to_owned()), "{output}");
    let failed = lines.iter().filter(|line| line.contains("failed to")).count();
    assert!(failed > 0, "{output}");
    let fed = machine.devices().calls().iter().filter(|call| *call == "keepalive").count();
    assert_eq!(fed, 1, "only before the wait");
}

/// wdmd with these options; what it prints goes to this file, standard error too.
fn printing_to(machine: &Machine, file: &str, options: &str) -> Command {
    let wdmd = machine.program().wdmd_path();
    let line = format!("exec {} {options} >{file} 2>&1", wdmd.display());
    machine.command_of(Path::new("sh"), &["-c", &line])
}

#[test]
fn what_is_printed_need_not_find_a_reader_and_the_device_is_stopped_nevertheless() {
    let Some(program) = ours() else { return };
    let mut table = Table::default();
    for (options, faults, code) in [
        ("-p", "", 0),
        ("-t 45", "", 0),
        ("-t 1 -F", "", 0),
        ("-p", "getsupport 5\n", 1),
        ("-p", "options 0\n", 1),
        ("-p", "max 5\n", 1),
        ("-t 45", "gettimeout 5\n", 1),
        ("-t 45", "settimeout 5\n", 1),
        ("-t 45", "takes 44\n", 1),
        ("-t 45", "keepalive 5\n", 1),
    ] {
        // A file system that is full: every write fails, as into a pipe whose reader has gone.
        let case = format!("{options}, {faults:?}");
        let machine = Machine::new(program);
        machine.devices().set_faults("watchdog0", faults);
        let output = bounded::run(printing_to(&machine, "/dev/full", options), SOON);
        table.expect(&case, output.code, code);
        let calls = machine.devices().calls().join(", ");
        table.expect(&format!("{case}: stopped: {calls}"), calls.ends_with("write V, close"), true);
        table.expect(&format!("{case}: marker"), machine.marker().exists(), false);
    }
}

#[test]
fn a_reader_that_takes_nothing_does_not_keep_the_device_running() {
    let Some(program) = ours() else { return };
    for options in ["-p", "-t 45"] {
        let machine = Machine::new(program);
        let path = machine.scripts().join("full");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let flags = nix::libc::O_NONBLOCK;
        let mut reader = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path).unwrap();
        while reader.write_all(&[0; 4096]).is_ok() {}
        while reader.write_all(&[0]).is_ok() {}
        let mut running = Running::start(printing_to(&machine, text(&path), options));
        bounded::wait_until("the device to be stopped", SOON, || {
            let calls = machine.devices().calls();
            calls.contains(&"open".to_owned())
                && machine.devices().reckoning("watchdog0", None).fires.is_none()
        });
        bounded::wait_until("the marker to go", SOON, || !machine.marker().exists());
        assert!(!running.ended(), "{options} still waits for its reader");
        drop(reader);
        bounded::wait_until("its end", SOON, || running.ended());
        assert_eq!(running.finish(SOON).code, 0, "{options}");
    }
}

/// wdmd with these options, and with signals that end a program also where whoever runs the tests ignores them, as behind `nohup` or in the
/// background.
fn with_default_signals(machine: &Machine, options: &[&str]) -> Command {
    let wdmd = machine.program().wdmd_path();
    let args: Vec<&str> =
        ["--default-signal=HUP,INT,TERM", text(&wdmd)].iter().chain(options).copied().collect();
    machine.command_of(Path::new("env"), &args)
}

#[test]
fn a_signal_ends_it_only_when_the_device_is_stopped() {
    let Some(program) = ours() else { return };
    let mut table = Table::default();
    for options in [&["-p"][..], &["-t", "45"]] {
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            let case = format!("{options:?} {signal}");
            let machine = Machine::new(program);
            machine.devices().set_faults("watchdog0", "delay 200\n");
            let mut running = Running::start(with_default_signals(&machine, options));
            bounded::wait_until("the device to be open", SOON, || {
                machine.devices().reckoning("watchdog0", None).fires.is_some()
            });
            kill(pid_of(running.pid()), signal).unwrap();
            table.expect(&case, running.finish(SOON).code, 128 + signal as i32);
            let calls = machine.devices().calls().join(", ");
            table.expect(&format!("{case}: stopped: {calls}"), calls.ends_with("write V, close"), true);
            table.expect(&format!("{case}: marker"), machine.marker().exists(), false);
        }
    }
}
