//! Actions and options of the command line, as scripts (`cases/*.txt`): what a command prints, its exit status, and which sectors
//! of the disk it changes. What stands in a script was recorded from the original; where ours differs on purpose the script says
//! so, with the reason.
//!
//! After a change of a script, `SANLOCK_RECORD=1 SANLOCK_UNDER_TEST=reference` writes the original's part anew, and then
//! `SANLOCK_RECORD=1 SANLOCK_UNDER_TEST=ours` adds what ours does otherwise, with a reason to be filled in.

mod disk;
mod play;
mod script;

use sanlock_conformance::Program;
use std::path::{Path, PathBuf};

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
