//! Many lockspaces on one host: all join in the time of one, in little memory.

use std::time::{Duration, Instant};

use sanlock_conformance::raw::flag;
use sanlock_conformance::{Host, Lockspace, Program, Storage};

const LOCKSPACES: u64 = 40;

/// Resident memory with all of them joined; for an optimised build.
const MEMORY_LIMIT_KIB: u64 = 25 * 1024;

#[test]
fn forty_lockspaces_join_in_the_time_of_one_and_stay_small() {
    let Some(program) = Program::ours_under_test("occupies one of eight workers per join") else { return };
    let storage = Storage::file();
    let mut host = Host::start(program, "host1");
    let path = storage.extra_file("spaces", LOCKSPACES + 1);
    let space = |n: u64| Lockspace::new(&format!("LS{n}"), 1, &path, n << 20);
    for n in 0..=LOCKSPACES {
        let arg = format!("LS{n}:0:{path}:{}", n << 20);
        let _ = host.client(&["direct", "init", "-s", &arg, "-o", "1"]).success();
    }

    let begin = Instant::now();
    assert_eq!(host.connect().add_lockspace(&space(0), 0, 1), 0);
    let one = begin.elapsed();

    let begin = Instant::now();
    for n in 1..=LOCKSPACES {
        assert_eq!(host.connect().add_lockspace(&space(n), flag::ADD_ASYNC, 1), 0);
    }
    for n in 1..=LOCKSPACES {
        assert_eq!(host.connect().inq_lockspace(&space(n), flag::INQ_WAIT), 0, "lockspace {n}");
    }
    let all = begin.elapsed();
    // Eight at a time would take five times as long.
    assert!(all <= one * 3, "{LOCKSPACES} joined in {all:?}, one in {one:?}");

    // A few renewals, so that everything that will be touched has been touched.
    std::thread::sleep(Duration::from_secs(8));
    let resident = resident_kib(host.pid()).unwrap();
    eprintln!("one joined in {one:?}, {LOCKSPACES} in {all:?}; {resident} KiB resident");
    // Without optimisation zeroed buffers are filled by hand and so take memory they never use.
    if Program::Ours.path().components().all(|part| part.as_os_str() != "debug") {
        assert!(resident < MEMORY_LIMIT_KIB, "{resident} KiB resident");
    }
    for n in 0..=LOCKSPACES {
        assert_eq!(host.connect().inq_lockspace(&space(n), 0), 0, "lockspace {n} is still joined");
    }
    assert!(host.alive());
}

fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
