//! Forty lockspaces, of which thirty-nine hang, and a thousand clients: the healthy one is renewed as if it were alone.
//!
//! A second daemon that has nothing else to do renews in the same lockspace at the same time. Whatever delays it too is the
//! machine's doing; what counts is the difference. `SANLOCK_HUNG_SECONDS` makes the run longer than its minute.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::frozen::FreezableDir;
use sanlock_conformance::raw::flag;
use sanlock_conformance::{Connection, Holder, Host, Lockspace, Program, Storage, bounded};

const HUNG: u64 = 39;
const CLIENTS: usize = 1000;
const SECONDS: u64 = 60;
/// The healthy lockspace may be renewed this much later than by the daemon that has nothing else to do: seconds are whole on the disk, and
/// the machine may delay one and not the other. A renewal that waits for those that hang is later by 8 s, until they are given up.
const LATE_SECONDS: u64 = 3;
const SOON: Duration = Duration::from_secs(60);
const SIGTERM: i32 = 128 + 15;

/// Place of the timestamp in a host_id lease (disk-format.md 6.3).
const TIMESTAMP: u64 = 152;

/// The renewals of one host as they appear on the disk.
struct Renewals {
    offset: u64,
    last: u64,
    longest: u64,
    count: u64,
}

impl Renewals {
    fn of(host_id: u64) -> Self {
        Self { offset: (host_id - 1) * 512 + TIMESTAMP, last: 0, longest: 0, count: 0 }
    }

    fn look(&mut self, disk: &File) {
        let mut bytes = [0; 8];
        disk.read_exact_at(&mut bytes, self.offset).unwrap();
        let found = u64::from_le_bytes(bytes);
        if found == self.last {
            return;
        }
        if self.last != 0 {
            self.longest = self.longest.max(found - self.last);
        }
        self.last = found;
        self.count += 1;
    }

    /// The gap that is open at the end counts as well.
    fn end(&mut self) {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap().tv_sec();
        self.longest = self.longest.max(u64::try_from(now).unwrap() - self.last);
    }
}

#[test]
fn thirty_nine_hung_lockspaces_and_a_thousand_clients_delay_no_renewal() {
    let Some(program) = Program::ours_under_test("serves eight joins at a time") else { return };
    let Some(mut place) = FreezableDir::new() else { return };
    let seconds = std::env::var("SANLOCK_HUNG_SECONDS").map_or(SECONDS, |text| text.parse().unwrap());
    let storage = Storage::file();
    let host = Host::start(program, "host1");
    host.init(&storage, 1);
    let path = place.path().join("hung").to_str().unwrap().to_owned();
    File::create(&path).and_then(|file| file.set_len((HUNG + 4) << 20)).unwrap();
    let name = |n: u64| format!("HUNG{n}");
    for n in 0..HUNG {
        let arg = format!("{}:0:{path}:{}", name(n), n << 20);
        let _ = host.client(&["direct", "init", "-s", &arg, "-o", "1"]).success();
    }
    let lease = |n: u64| format!("{}:R{n}:{path}:{}", name(n), (HUNG + n) << 20);
    for n in 0..3 {
        let _ = host.client(&["direct", "init", "-r", &lease(n)]).success();
    }
    host.join(&storage, 1);
    let space = |n: u64| Lockspace::new(&name(n), 1, &path, n << 20);
    for n in 0..HUNG {
        assert_eq!(host.connect().add_lockspace(&space(n), flag::ADD_ASYNC, 1), 0);
    }
    for n in 0..HUNG {
        assert_eq!(host.connect().inq_lockspace(&space(n), flag::INQ_WAIT), 0, "lockspace {n}");
    }
    let idle = Host::start(program, "host2");
    idle.join(&storage, 2);
    let mut holders: Vec<Holder> = (0..3).map(|n| Holder::start(&host, &[&lease(n)])).collect();
    // What the holders need is counted in.
    let mut clients: Vec<Connection> = (0..CLIENTS - 20).map(|_| registered(&host)).collect();
    assert_eq!(clients[0].acquire_one(&storage.resource(1)), 0);

    let disk = File::open(storage.path()).unwrap();
    let (mut busy, mut alone) = (Renewals::of(1), Renewals::of(2));
    place.freeze_for(seconds + 300);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut round = 0;
    while Instant::now() < end {
        busy.look(&disk);
        alone.look(&disk);
        // Every client has something to say now and then.
        let client = round % CLIENTS.min(clients.len());
        assert!(clients[client].inquire(None).count <= 1);
        round += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    busy.end();
    alone.end();
    eprintln!(
        "{seconds} s: {} renewals at most {} s apart; alone {} at most {} s apart",
        busy.count, busy.longest, alone.count, alone.longest
    );
    assert!(busy.count > 1 && alone.count > 1);
    assert!(busy.longest <= alone.longest + LATE_SECONDS, "{} s without a renewal", busy.longest);
    for holder in &mut holders {
        let ended = holder.finish(SOON);
        assert_eq!(ended.code, SIGTERM, "a user of a hung lockspace is stopped: {ended}");
    }
    assert_eq!(clients[0].inquire(None).count, 1, "the lease in the healthy lockspace is held");
    place.thaw();
    bounded::wait_until("the hung lockspaces to be gone", SOON, || {
        (0..HUNG).all(|n| host.connect().inq_lockspace(&space(n), 0) == -2)
    });
    assert_eq!(host.connect().inq_lockspace(&storage.lockspace(1), 0), 0);
}
