//! Actions and options of the command line, as scripts (`cases/*.txt`): what a command prints, its exit status, and which sectors
//! of the disk it changes. What stands in a script was recorded from the original; where ours differs on purpose the script says
//! so, with the reason.
//!
//! After a change of a script, `SANLOCK_RECORD=1 SANLOCK_UNDER_TEST=reference` writes the original's part anew, and then
//! `SANLOCK_RECORD=1 SANLOCK_UNDER_TEST=ours` adds what ours does otherwise, with a reason to be filled in.

mod disk;
mod play;
mod script;

use sanlock_conformance::storage::StorageKind;
use sanlock_conformance::{Host, Program, Storage};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/cases")
}

fn run(name: &str) {
    let Some(program) = Program::under_test() else { return };
    play::play(&cases().join(format!("{name}.txt")), program);
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*

        #[test]
        fn every_script_is_run() {
            let listed = [$(stringify!($name)),*];
            let dir = std::fs::read_dir(cases()).unwrap_or_else(|error| panic!("{error}"));
            let mut found = 0;
            for entry in dir {
                let path = entry.unwrap_or_else(|error| panic!("{error}")).path();
                let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
                assert!(listed.contains(&name.as_str()), "{name} is not listed");
                found += 1;
            }
            assert_eq!(found, listed.len());
        }
    };
}

scripts! {
    acquire_release
    client_leases
    client_storage
    direct_acquire_release
    direct_host_id
    direct_index
    direct_init_read
    direct_dump_next_free
    direct_write_leader
    events_config
    grammar
    index
    lockspace
    no_daemon
    shutdown
    status
}

/// A device that ends in errors: its backing file is shorter than it was. The original shows what it has and says nothing.
#[test]
fn a_dump_of_storage_that_cannot_be_read_is_a_difference() {
    let Some(program) = Program::under_test() else { return };
    let Some(storage) = Storage::new(StorageKind::Loop512) else { return };
    let host = Host::start(program, "host1");
    host.init(&storage, 2);
    let direct = Command::new("losetup").args(["--direct-io=on", storage.path()]).status();
    assert!(direct.is_ok_and(|status| status.success()), "reads reach the file");
    let file = File::options().write(true).open(storage.dir().join("leases"));
    file.and_then(|file| file.set_len(storage.offset(1) + 512)).unwrap_or_else(|error| panic!("{error}"));
    let dump = host.client(&["direct", "dump", storage.path()]);
    assert_eq!(dump.stdout.lines().count(), 1, "the heading: {dump}");
    if program == Program::Ours {
        assert_eq!(dump.code, 1);
        assert!(
            dump.stderr.contains(&format!("at offset {} of {}: EIO", storage.offset(1), storage.path())),
            "{dump}"
        );
    } else {
        assert_eq!((dump.code, dump.stderr.as_str()), (0, ""));
    }
}
