//! The stock python3-sanlock drives the daemon under test.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sanlock_conformance::program::missing;
use sanlock_conformance::{Host, Program, Storage, StorageKind, bounded};

const PYTHON: &str = "/usr/bin/python3";

fn python_sanlock_available() -> bool {
    let probe = Command::new(PYTHON).args(["-c", "import sanlock"]).output();
    if probe.is_ok_and(|output| output.status.success()) {
        return true;
    }
    missing("python3-sanlock (the sanlock module of /usr/bin/python3)")
}

#[test]
fn the_stock_python_module_goes_through_the_life_of_a_lease() {
    let Some(program) = Program::under_test() else { return };
    if !python_sanlock_available() {
        return;
    }
    let parts = StorageKind::ALL.map(|kind| {
        let part: Box<dyn FnOnce() + Send> = Box::new(move || {
            let Some(storage) = Storage::new(kind) else { return };
            let host = Host::start(program, "host1");
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/session.py");
            let mut command = Command::new(PYTHON);
            command.arg(script).arg(storage.path());
            command.args([storage.kind().align_size().to_string(), storage.kind().sector_size().to_string()]);
            command.env("SANLOCK_RUN_DIR", host.run_dir());
            let output = bounded::run(command, Duration::from_secs(60)).success();
            assert_eq!(output.stdout, "complete\n", "{output}");
        });
        (format!("{kind:?}"), part)
    });
    bounded::side_by_side(parts.into());
}
