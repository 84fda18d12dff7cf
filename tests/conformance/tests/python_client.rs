//! The stock python3-sanlock drives the daemon under test.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sanlock_conformance::program::missing;
use sanlock_conformance::{Host, Program, Storage, StorageKind, bounded};

const PYTHON: &str = "/usr/bin/python3";

/// Far more than a script takes.
const LIMIT: Duration = Duration::from_secs(120);

fn under_test() -> Option<Program> {
    let program = Program::under_test()?;
    let probe = Command::new(PYTHON).args(["-c", "import sanlock"]).output();
    let available = probe.is_ok_and(|output| output.status.success())
        || missing("python3-sanlock (the sanlock module of /usr/bin/python3)");
    available.then_some(program)
}

/// Runs a script to its end; `args` come before the storage, `part` after it.
fn run(script: &str, hosts: &[&Host], storage: &Storage, part: &[&str]) {
    let mut command = Command::new(PYTHON);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(script));
    if hosts.len() > 1 {
        command.args(hosts.iter().map(|host| host.run_dir()));
    }
    command.arg(storage.path());
    command.args([storage.kind().align_size().to_string(), storage.kind().sector_size().to_string()]);
    command.args(part);
    command.env("SANLOCK_RUN_DIR", hosts[0].run_dir());
    let output = bounded::run(command, LIMIT).success();
    assert_eq!(output.stdout, "complete\n", "{output}");
}

/// One part of `functions.py`, on every kind of storage side by side.
fn part(name: &'static str) {
    let Some(program) = under_test() else { return };
    let parts = StorageKind::ALL.map(|kind| {
        let part: Box<dyn FnOnce() + Send> = Box::new(move || {
            let Some(storage) = Storage::new(kind) else { return };
            let hosts = ["host1", "host2"].map(|name| Host::start(program, name));
            run("functions.py", &[&hosts[0], &hosts[1]], &storage, &[name]);
        });
        (format!("{kind:?}"), part)
    });
    bounded::side_by_side(parts.into());
}

#[test]
fn the_stock_python_module_goes_through_the_life_of_a_lease() {
    let Some(program) = under_test() else { return };
    let parts = StorageKind::ALL.map(|kind| {
        let part: Box<dyn FnOnce() + Send> = Box::new(move || {
            let Some(storage) = Storage::new(kind) else { return };
            let host = Host::start(program, "host1");
            run("session.py", &[&host], &storage, &[]);
        });
        (format!("{kind:?}"), part)
    });
    bounded::side_by_side(parts.into());
}

#[test]
fn python_formats_reads_and_is_refused() {
    part("surface");
}

#[test]
fn python_takes_leases_for_other_processes() {
    part("targets");
}

#[test]
fn python_asks_owners_to_let_go() {
    part("requests");
}

#[test]
fn python_sends_and_receives_events() {
    part("events");
}

#[test]
fn python_keeps_values_in_leases() {
    part("lvb");
}
