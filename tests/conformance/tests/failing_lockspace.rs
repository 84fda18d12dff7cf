//! A lockspace that cannot be renewed, or is damaged, stops its users in time, and only those
//! (lease-algorithms.md 10). The grace period is shortened to 6 s: users get SIGTERM 8 io timeouts
//! after the last good renewal and SIGKILL 6 s later.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use sanlock_conformance::dead_owner::{now_seconds, registered};
use sanlock_conformance::frozen::FreezableDir;
use sanlock_conformance::host::pid_of;
use sanlock_conformance::raw::{Header, cmd};
use sanlock_conformance::storage::damage_host_id_until;
use sanlock_conformance::{Connection, Holder, Host, Lockspace, Program, Resource, Storage, bounded};

const GRACE: [&str; 2] = ["-g", "6"];
const GRACE_SECONDS: u64 = 6;
/// A lockspace with io timeout 1 has failed this long after its last good renewal; with a longer one as many times as long.
const FAILED_AFTER_SECONDS: u64 = 8;
/// Whole seconds on both sides, and a check every second.
const SLACK_SECONDS: u64 = 1;
/// A busy machine may be later by this much.
const LATE_SECONDS: u64 = 30;
/// Where damage is to be found long before the lockspace has failed for want of renewals.
const LONG_IO_TIMEOUT: u64 = 4;

const SOON: Duration = Duration::from_secs(60);

/// Place of the timestamp in a host_id lease (disk-format.md 6.3).
const TIMESTAMP: u64 = 152;

const SIGTERM: i32 = 128 + 15;
const SIGKILL: i32 = 128 + 9;

/// A program that cannot be stopped gently.
const STUBBORN: [&str; 3] = ["/bin/sh", "-c", "trap '' TERM; exec sleep 1000"];

/// One host in two lockspaces: LS on `storage`-independent `path`, and OK on a file that stays
/// healthy.
struct TwoLockspaces {
    host: Host,
    healthy: Storage,
    path: String,
    healthy_client: Connection,
}

impl TwoLockspaces {
    fn new(program: Program, path: &str) -> Self {
        Self::with_io_timeout(program, path, 1)
    }

    /// The endangered one on a file system that can be frozen, where that is to be had.
    #[expect(clippy::unwrap_used, reason = "a test ends where its scratch file cannot be made")]
    fn freezable(program: Program) -> Option<(FreezableDir, Self)> {
        let place = FreezableDir::new()?;
        let path = place.path().join("bad").to_str().unwrap().to_owned();
        File::create(&path).and_then(|file| file.set_len(4 << 20)).unwrap();
        Some((place, Self::new(program, &path)))
    }

    /// The endangered one with this io timeout.
    fn with_io_timeout(program: Program, path: &str, io_timeout: u64) -> Self {
        let io_timeout = io_timeout.to_string();
        let host = Host::start_with(program, program, "host1", &GRACE);
        let healthy = Storage::file();
        host.init(&healthy, 2);
        // The healthy storage has the usual names; the endangered one is called BAD.
        let bad = format!("BAD:0:{path}:0");
        let _ = host.client(&["client", "init", "-s", &bad, "-o", &io_timeout]).success();
        for n in 1..=2_u64 {
            let lease = format!("BAD:R{n}:{path}:{}", n << 20);
            let _ = host.client(&["client", "init", "-r", &lease]).success();
        }
        let (good, bad) = (healthy.lockspace_arg(1), format!("BAD:1:{path}:0"));
        let joins = [(&good, "1"), (&bad, io_timeout.as_str())]
            .map(|(arg, seconds)| ["client", "add_lockspace", "-s", arg, "-o", seconds])
            .map(|command| (command, host.client_in_background(&command)));
        for (command, mut join) in joins {
            let _ = host.in_time(join.finish(SOON), &command).success();
        }
        let mut healthy_client = registered(&host);
        assert_eq!(healthy_client.acquire_one(&healthy.resource(1)), 0);
        Self { host, healthy, path: path.to_owned(), healthy_client }
    }

    fn bad_lockspace(&self) -> Lockspace {
        Lockspace::new("BAD", 1, &self.path, 0)
    }

    fn bad_lease(&self, n: u64) -> String {
        format!("BAD:R{n}:{}:{}", self.path, n << 20)
    }

    /// The lockspace fails: nothing more is granted in it, its users go, and then it goes.
    fn wait_until_gone(&self) {
        bounded::wait_until("the failed lockspace to be gone", SOON, || {
            self.host.connect().inq_lockspace(&self.bad_lockspace(), 0) == -2
        });
    }

    /// The monotonic second of the last renewal of the endangered lockspace, as it is on the disk.
    fn last_renewal(&self) -> u64 {
        let mut bytes = [0; 8];
        let read = File::open(&self.path).and_then(|disk| disk.read_exact_at(&mut bytes, TIMESTAMP));
        read.unwrap_or_else(|error| panic!("{}: {error}", self.path));
        u64::from_le_bytes(bytes)
    }

    /// The other lockspace neither waits nor loses anything: whoever waits for storage that hangs waits until the case lets it go on.
    fn assert_the_other_is_unharmed(&mut self) {
        assert_eq!(self.healthy_client.inquire(None).count, 1, "the lease in the other lockspace is held");
        assert_eq!(self.healthy_client.acquire_one(&self.healthy.resource(2)), 0);
        assert_eq!(self.healthy_client.release_one(&self.healthy.resource(2)), 0);
        assert_eq!(self.host.connect().inq_lockspace(&self.healthy.lockspace(1), 0), 0);
    }

    fn acquire_in_bad(&self) -> i32 {
        let resource = Resource::new("BAD", "R2", &self.path, 2 << 20);
        registered(&self.host).acquire_one(&resource)
    }
}

#[test]
fn users_of_a_damaged_lockspace_are_stopped_at_once_and_others_are_not() {
    let Some(program) = Program::under_test() else { return };
    let scratch = Storage::file();
    let mut two = TwoLockspaces::with_io_timeout(program, &scratch.extra_file("bad", 4), LONG_IO_TIMEOUT);
    let mut gentle = Holder::start(&two.host, &[&two.bad_lease(1)]);
    let mut stubborn = Holder::start_program(&two.host, &[&two.bad_lease(2)], &STUBBORN);

    // The own sector is no host id lease any more. The last good renewal was up to two io timeouts before.
    let damaged = Instant::now();
    let failed = Duration::from_secs(LONG_IO_TIMEOUT * FAILED_AFTER_SECONDS);
    let at_once = failed - Duration::from_secs(2 * LONG_IO_TIMEOUT + SLACK_SECONDS);
    damage_host_id_until(Path::new(&two.path), 1, "the gentle user to end", SOON, || gentle.ended());
    assert!(damaged.elapsed() < at_once, "after {:?}", damaged.elapsed());
    let end = gentle.finish(SOON);
    assert_eq!(end.code, SIGTERM, "the gentle user is asked to end: {end}");
    assert_eq!(two.acquire_in_bad(), -28, "nothing is granted in a failed lockspace");
    two.assert_the_other_is_unharmed();

    let end = stubborn.finish(SOON + SOON);
    assert_eq!(end.code, SIGKILL, "the stubborn user is killed: {end}");
    // A renewal that wrote over the damage came up to two io timeouts after it.
    let late = Duration::from_secs(GRACE_SECONDS + 2 * LONG_IO_TIMEOUT + SLACK_SECONDS + LATE_SECONDS);
    assert!(damaged.elapsed() < failed + late, "after {:?}", damaged.elapsed());
    two.wait_until_gone();
    two.assert_the_other_is_unharmed();
}

#[test]
fn users_are_stopped_in_time_when_writes_hang_and_others_are_not() {
    let Some(program) = Program::under_test() else { return };
    let Some((mut place, mut two)) = TwoLockspaces::freezable(program) else { return };
    let mut gentle = Holder::start(&two.host, &[&two.bad_lease(1)]);
    let mut stubborn = Holder::start_program(&two.host, &[&two.bad_lease(2)], &STUBBORN);

    place.freeze();
    let last_renewal = two.last_renewal();
    two.assert_the_other_is_unharmed();
    let end = gentle.finish(SOON);
    let gentle_after = now_seconds() - last_renewal;
    assert_eq!(end.code, SIGTERM, "the gentle user is asked to end: {end}");
    let earliest = FAILED_AFTER_SECONDS - SLACK_SECONDS;
    let latest = FAILED_AFTER_SECONDS + SLACK_SECONDS + LATE_SECONDS;
    assert!((earliest..=latest).contains(&gentle_after), "SIGTERM {gentle_after} s after the last renewal");
    two.assert_the_other_is_unharmed();

    let end = stubborn.finish(SOON + SOON);
    let stubborn_after = now_seconds() - last_renewal;
    assert_eq!(end.code, SIGKILL, "the stubborn user is killed: {end}");
    let killed = earliest + GRACE_SECONDS..=latest + GRACE_SECONDS;
    assert!(killed.contains(&stubborn_after), "SIGKILL {stubborn_after} s after the last renewal");
    two.assert_the_other_is_unharmed();

    place.thaw();
    two.wait_until_gone();
    two.assert_the_other_is_unharmed();
    let rejoined =
        two.host.client(&["client", "add_lockspace", "-s", &format!("BAD:1:{}:0", two.path), "-o", "1"]);
    let _ = rejoined.success();
    assert_eq!(two.acquire_in_bad(), 0, "it can be used again once the storage is back");
}

/// Nobody has to wait for a host until it is dead by a record that it has written when it used nothing any more.
#[test]
fn a_failed_lockspace_that_is_renewed_again_frees_its_host_id() {
    let Some(program) = Program::under_test() else { return };
    let Some((mut place, mut two)) = TwoLockspaces::freezable(program) else { return };
    let mut gentle = Holder::start(&two.host, &[&two.bad_lease(1)]);
    let mut stubborn = Holder::start_program(&two.host, &[&two.bad_lease(2)], &STUBBORN);

    place.freeze();
    let before = two.last_renewal();
    assert_eq!(gentle.finish(SOON).code, SIGTERM, "the lockspace has failed");
    place.thaw();
    bounded::wait_until("a renewal after the failure", SOON, || {
        two.last_renewal() > before + FAILED_AFTER_SECONDS
    });
    assert_eq!(two.acquire_in_bad(), -28, "that saves no failed lockspace");
    assert_eq!(kill(pid_of(stubborn.pid()), Signal::SIGKILL), Ok(()));
    let _end = stubborn.finish(SOON);
    two.wait_until_gone();
    assert_eq!(two.last_renewal(), 0, "the host_id lease is freed");
    two.assert_the_other_is_unharmed();
}

#[test]
fn a_short_hang_is_survived() {
    let Some(program) = Program::under_test() else { return };
    let Some((mut place, mut two)) = TwoLockspaces::freezable(program) else { return };
    let mut holder = Holder::start(&two.host, &[&two.bad_lease(1)]);
    for _ in 0..2 {
        place.freeze();
        std::thread::sleep(Duration::from_secs(4));
        place.thaw();
        std::thread::sleep(Duration::from_secs(4));
    }
    assert!(!holder.ended(), "4 s without writes are no failure");
    assert_eq!(holder.leases(&two.host).map(|leases| leases.len()), Some(1));
    assert_eq!(two.host.connect().inq_lockspace(&two.bad_lockspace(), 0), 0);
    two.assert_the_other_is_unharmed();
}

/// No byte, silence or slowness of any client may stop the expiry checks.
#[test]
fn misbehaving_clients_do_not_delay_the_end_of_a_failed_lockspace() {
    let Some(program) = Program::ours_under_test("stops its checks for a partial header") else { return };
    let Some((mut place, mut two)) = TwoLockspaces::freezable(program) else { return };
    let mut stubborn = Holder::start_program(&two.host, &[&two.bad_lease(1)], &STUBBORN);
    let mut stuck = Vec::new();
    for _ in 0..10 {
        for bytes in [&[0x10_u8][..], &Header::request(cmd::READ_LOCKSPACE, 1104).encode()] {
            let mut connection = two.host.connect();
            connection.send(bytes);
            stuck.push(connection);
        }
        let mut writer = two.host.connect();
        let bad = two.bad_lockspace().encode();
        writer.send_message(Header::request(cmd::WRITE_LOCKSPACE, bad.len()), &bad[..bad.len() - 1]);
        stuck.push(writer);
    }
    place.freeze();
    let frozen = Instant::now();
    two.assert_the_other_is_unharmed();
    let end = stubborn.finish(SOON + SOON);
    assert_eq!(end.code, SIGKILL, "the stubborn user is killed: {end}");
    let limit = FAILED_AFTER_SECONDS + GRACE_SECONDS + SLACK_SECONDS + LATE_SECONDS;
    assert!(frozen.elapsed() <= Duration::from_secs(limit), "after {:?}", frozen.elapsed());
    two.assert_the_other_is_unharmed();
    drop(stuck);
    place.thaw();
    two.wait_until_gone();
}
