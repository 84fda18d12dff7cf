//! A process that gets no more memory: the operation fails, and the process goes on. Alone in its process, whose limit it is.

mod support;

use std::fs::File;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sanlock_blockio::{Access, BlockingIo, Disk, EngineKind, IoErrorKind};
use support::data;

#[test]
fn a_read_for_which_there_is_no_memory_fails_and_the_next_one_works() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("area");
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let disk = Disk::open(&path, Access::ReadOnly).unwrap();
    let mut io = BlockingIo::new(EngineKind::Threads).unwrap();
    let mut area = vec![0; 8 << 20];
    let mut read = |len| io.read_exact_at(&disk, 0, &mut area[..len], Duration::from_secs(60));
    read(512).unwrap();

    let (soft, hard) = getrlimit(Resource::RLIMIT_DATA).unwrap();
    setrlimit(Resource::RLIMIT_DATA, data() + (4 << 20), hard).unwrap();
    let (large, small) = (read(8 << 20), read(512));
    setrlimit(Resource::RLIMIT_DATA, soft, hard).unwrap();

    assert_eq!(large.unwrap_err().kind, IoErrorKind::Os(nix::libc::ENOMEM));
    small.unwrap();
    read(8 << 20).unwrap();
}
