//! A lockspace that cannot be renewed, or is damaged, stops its users in time, and only those
//! (lease-algorithms.md 10). The grace period is shortened to 6 s: with io timeout 1 users get
//! SIGTERM 8 s after the last good renewal and SIGKILL after 14 s.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use sanlock_conformance::dead_owner::{now_seconds, registered};
use sanlock_conformance::frozen::FreezableDir;
use sanlock_conformance::raw::{Header, cmd};
use sanlock_conformance::{Connection, Holder, Host, Lockspace, Program, Resource, Storage, bounded};

const GRACE: [&str; 2] = ["-g", "6"];
const GRACE_SECONDS: u64 = 6;
/// A lockspace has failed this long after its last good renewal (8 × io timeout).
const FAILED_AFTER_SECONDS: u64 = 8;
/// The check runs every second, and a renewal may be up to 3 s old when the trouble begins.
const SLACK_SECONDS: u64 = 3;
/// A busy machine may be later by this much.
const LATE_SECONDS: u64 = 12;

const SOON: Duration = Duration::from_secs(20);

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
        let host = Host::start_with(program, program, "host1", &GRACE);
        let healthy = Storage::file();
        host.init(&healthy, 2);
        // The healthy storage has the usual names; the endangered one is called BAD.
        let bad = format!("BAD:0:{path}:0");
        let _ = host.client(&["client", "init", "-s", &bad, "-o", "1"]).success();
        for n in 1..=2_u64 {
            let lease = format!("BAD:R{n}:{path}:{}", n << 20);
            let _ = host.client(&["client", "init", "-r", &lease]).success();
        }
        let mut joins = [healthy.lockspace_arg(1), format!("BAD:1:{path}:0")]
            .map(|arg| host.client_in_background(&["client", "add_lockspace", "-s", &arg, "-o", "1"]));
        for join in &mut joins {
            let _ = join.finish(SOON).success();
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

    /// The other lockspace neither waits nor loses anything.
    fn assert_the_other_is_unharmed(&mut self) {
        let begin = Instant::now();
        assert_eq!(self.healthy_client.inquire(None).count, 1, "the lease in the other lockspace is held");
        assert_eq!(self.healthy_client.acquire_one(&self.healthy.resource(2)), 0);
        assert_eq!(self.healthy_client.release_one(&self.healthy.resource(2)), 0);
        assert_eq!(self.host.connect().inq_lockspace(&self.healthy.lockspace(1), 0), 0);
        assert!(begin.elapsed() < Duration::from_secs(6), "it took {:?}", begin.elapsed());
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
    let mut two = TwoLockspaces::new(program, &scratch.extra_file("bad", 4));
    let mut gentle = Holder::start(&two.host, &[&two.bad_lease(1)]);
    let mut stubborn = Holder::start_program(&two.host, &[&two.bad_lease(2)], &STUBBORN);

    // The own sector is no host id lease any more.
    overwrite(&two.path, 0, 512).unwrap();
    let damaged = Instant::now();
    let end = gentle.finish(SOON);
    assert_eq!(end.code, SIGTERM, "the gentle user is asked to end: {end}");
    assert!(damaged.elapsed() < Duration::from_secs(FAILED_AFTER_SECONDS), "after {:?}", damaged.elapsed());
    assert_eq!(two.acquire_in_bad(), -28, "nothing is granted in a failed lockspace");
    two.assert_the_other_is_unharmed();

    let end = stubborn.finish(SOON);
    assert_eq!(end.code, SIGKILL, "the stubborn user is killed: {end}");
    let limit = FAILED_AFTER_SECONDS + GRACE_SECONDS + SLACK_SECONDS + LATE_SECONDS;
    assert!(damaged.elapsed() < Duration::from_secs(limit), "after {:?}", damaged.elapsed());
    two.wait_until_gone();
    two.assert_the_other_is_unharmed();
}

fn overwrite(path: &str, offset: u64, length: usize) -> std::io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&vec![0xff; length], offset)?;
    file.sync_all()
}

#[test]
fn users_are_stopped_in_time_when_writes_hang_and_others_are_not() {
    let Some(program) = Program::under_test() else { return };
    let Some(mut place) = FreezableDir::new() else { return };
    let path = place.path().join("bad").to_str().unwrap().to_owned();
    File::create(&path).and_then(|file| file.set_len(4 << 20)).unwrap();
    let mut two = TwoLockspaces::new(program, &path);
    let mut gentle = Holder::start(&two.host, &[&two.bad_lease(1)]);
    let mut stubborn = Holder::start_program(&two.host, &[&two.bad_lease(2)], &STUBBORN);

    place.freeze();
    let last_renewal = now_seconds();
    two.assert_the_other_is_unharmed();
    let end = gentle.finish(SOON);
    let gentle_after = now_seconds() - last_renewal;
    assert_eq!(end.code, SIGTERM, "the gentle user is asked to end: {end}");
    // The last renewal was up to 3 s before the freeze.
    let earliest = FAILED_AFTER_SECONDS - SLACK_SECONDS - 1;
    let latest = FAILED_AFTER_SECONDS + SLACK_SECONDS + LATE_SECONDS;
    assert!((earliest..=latest).contains(&gentle_after), "SIGTERM {gentle_after} s after the freeze");
    two.assert_the_other_is_unharmed();

    let end = stubborn.finish(SOON + SOON);
    let stubborn_after = now_seconds() - last_renewal;
    assert_eq!(end.code, SIGKILL, "the stubborn user is killed: {end}");
    let killed = earliest + GRACE_SECONDS..=latest + GRACE_SECONDS;
    assert!(killed.contains(&stubborn_after), "SIGKILL {stubborn_after} s after the freeze");
    two.assert_the_other_is_unharmed();

    place.thaw();
    two.wait_until_gone();
    two.assert_the_other_is_unharmed();
    let rejoined = two.host.client(&["client", "add_lockspace", "-s", &format!("BAD:1:{path}:0"), "-o", "1"]);
    let _ = rejoined.success();
    assert_eq!(two.acquire_in_bad(), 0, "it can be used again once the storage is back");
}

#[test]
fn a_short_hang_is_survived() {
    let Some(program) = Program::under_test() else { return };
    let Some(mut place) = FreezableDir::new() else { return };
    let path = place.path().join("bad").to_str().unwrap().to_owned();
    File::create(&path).and_then(|file| file.set_len(4 << 20)).unwrap();
    let mut two = TwoLockspaces::new(program, &path);
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
    let Some(mut place) = FreezableDir::new() else { return };
    let path = place.path().join("bad").to_str().unwrap().to_owned();
    File::create(&path).and_then(|file| file.set_len(4 << 20)).unwrap();
    let mut two = TwoLockspaces::new(program, &path);
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
