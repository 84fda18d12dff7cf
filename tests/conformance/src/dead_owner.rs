//! A host dies while it owns a lease: when, and by whom, the lease may be taken.
//!
//! All hosts of a case run on one machine and share its monotonic clock, so the time stamp of the
//! dead host's last renewal can be compared with the moment the lease changed hands.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::bounded;
use crate::holder::Holder;
use crate::host::Host;
use crate::program::Program;
use crate::raw::{Connection, flag};
use crate::scene::Scene;
use crate::storage::{LOCKSPACE, Storage};

/// With io timeout 1 an owner is dead this many seconds after its last renewal: 8 × 1 for its
/// processes to be gone, 60 for its watchdog (lease-algorithms.md 4.3).
pub const DEAD_AFTER_SECONDS: u64 = 68;

/// Longest wait for a lease of a dead owner.
pub const TAKE_OVER_LIMIT: Duration = Duration::from_secs(90);

/// States in GET_HOSTS flags (socket-protocol.md 4.1).
const FAIL: u32 = 4;
const DEAD: u32 = 5;

/// A lease whose owner, host 2 of the scene, was killed together with its processes.
#[derive(Debug)]
pub struct Abandoned {
    /// Host 1 lives; host 2's daemon is dead.
    pub scene: Scene,
    /// When it was killed.
    pub killed: Instant,
    /// Monotonic second of its last renewal.
    pub last_renewal: u64,
}

/// Lets host 2 own the resources 1 to `resources` and kills it with the holder.
///
/// # Panics
/// When any step fails.
#[must_use]
pub fn abandon(storage: Storage, survivor: Program, victim: Program, resources: u64) -> Abandoned {
    let mut scene = Scene::joined(storage, &[survivor, victim], resources + 1);
    scene.wait_until_all_see_all();
    let args: Vec<String> = (1..=resources).map(|n| scene.storage().resource_arg(n)).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut holder = Holder::start(scene.host(1), &args);
    let mut client = registered(scene.host(0));
    assert_eq!(client.acquire_one(&scene.storage().resource(1)), -243, "the owner is alive");
    // The daemon first: otherwise it would release the lease of the killed process.
    scene.host_mut(1).kill();
    holder.kill();
    let killed = Instant::now();
    let last_renewal = renewal_on_disk(&scene, 2);
    assert_eq!(scene.owner(1), Some((2, 1)), "the lease is still the dead host's");
    Abandoned { scene, killed, last_renewal }
}

/// The time stamp in the host id lease, read from disk.
fn renewal_on_disk(scene: &Scene, host_id: u64) -> u64 {
    let text = scene
        .host(0)
        .client(&["direct", "read_leader", "-s", &scene.storage().lockspace_arg(host_id)])
        .success()
        .stdout;
    let value = text.lines().find_map(|line| line.strip_prefix("timestamp ")?.parse().ok());
    value.unwrap_or_else(|| panic!("no time stamp in {text}"))
}

/// Host 1 takes resource 1 once its owner is dead, neither earlier nor much later, and is told on
/// the way how things stand.
///
/// # Panics
/// When it does not happen like that.
pub fn take_over(abandoned: &Abandoned) {
    let Abandoned { scene, killed, last_renewal } = abandoned;
    let resource = scene.storage().resource(1);
    let host = scene.host(0);
    let mut waiter = registered(host);
    waiter.set_limit(TAKE_OVER_LIMIT);
    let states = watch_states(host, *last_renewal);
    assert!(states.contains(&FAIL), "host 2 was seen failing before it was dead: {states:?}");
    assert_eq!(impatient(host, scene), -247, "not dead yet, and the caller does not wait");

    let granted = loop {
        match waiter.acquire_one(&resource) {
            0 => break now_seconds(),
            -243 if killed.elapsed() < TAKE_OVER_LIMIT => std::thread::sleep(Duration::from_millis(200)),
            other => panic!("waiting for a dead owner gave {other} after {:?}", killed.elapsed()),
        }
    };
    let after = granted - last_renewal;
    assert!(after >= DEAD_AFTER_SECONDS, "granted {after} s after the last renewal of its owner");
    assert!(
        killed.elapsed() < Duration::from_secs(DEAD_AFTER_SECONDS + 40),
        "granted only {:?} after the crash",
        killed.elapsed()
    );
    assert_eq!((scene.owner(1), scene.lver(1)), (Some((1, 1)), 2));
    let (_, hosts) = host.connect().get_hosts(LOCKSPACE, 2);
    assert_eq!(hosts.iter().map(|entry| entry.flags & 0xf).collect::<Vec<_>>(), [DEAD]);
    assert_eq!(waiter.release_one(&resource), 0);
    assert_eq!(waiter.acquire_one(&resource), 0, "and it can be used like any other");
}

/// Looks at host 2's state until it is 20 s since its last renewal.
fn watch_states(host: &Host, last_renewal: u64) -> Vec<u32> {
    let mut states = Vec::new();
    while now_seconds() < last_renewal + 20 {
        let (result, hosts) = host.connect().get_hosts(LOCKSPACE, 2);
        assert_eq!(result, 0);
        states.extend(hosts.iter().map(|entry| entry.flags & 0xf));
        std::thread::sleep(Duration::from_millis(500));
    }
    states.dedup();
    assert!(!states.contains(&DEAD), "host 2 was reported dead within 20 s: {states:?}");
    states
}

/// An acquire that does not wait for a dead owner.
fn impatient(host: &Host, scene: &Scene) -> i32 {
    let mut client = registered(host);
    client.acquire(&[scene.storage().resource(1)], flag::ACQUIRE_OWNER_NOWAIT, None)
}

/// Host 2 comes back under its old host id before anybody has taken its lease. Its new life cannot
/// hold what the old one held: host 1 gets the lease as soon as host 2 has joined again.
///
/// # Panics
/// When it does not happen like that.
pub fn reborn(mut abandoned: Abandoned) {
    let scene = &mut abandoned.scene;
    scene.host_mut(1).restart();
    scene.host(1).join(scene.storage(), 2);
    let joined = Instant::now();
    let mut client = registered(scene.host(0));
    let resource = scene.storage().resource(1);
    let mut answers = Vec::new();
    bounded::wait_until("the lease of an earlier life to be granted", Duration::from_secs(60), || {
        let answer = client.acquire_one(&resource);
        assert!(matches!(answer, 0 | -243), "acquire gave {answer}");
        answers.push(answer);
        answer == 0
    });
    assert_eq!(scene.owner(1), Some((1, 1)), "{:?} after the join: {answers:?}", joined.elapsed());
    // The new life takes what host 1 lets go of, under its new generation.
    assert_eq!(client.release_one(&resource), 0);
    let mut again = registered(scene.host(1));
    assert_eq!(again.acquire_one(&resource), 0);
    let (_, generation) = scene.owner(1).unwrap_or_default();
    assert_eq!(generation, 2, "a new life has a new generation");
}

/// The host itself, back under its old host id, takes its own lease of an earlier life at once.
///
/// # Panics
/// When it does not happen like that.
pub fn own_earlier_life(mut abandoned: Abandoned) {
    let scene = &mut abandoned.scene;
    scene.host_mut(1).restart();
    scene.host(1).join(scene.storage(), 2);
    let mut client = registered(scene.host(1));
    let begin = Instant::now();
    assert_eq!(client.acquire_one(&scene.storage().resource(1)), 0);
    assert!(begin.elapsed() < Duration::from_secs(30), "it waited {:?} for itself", begin.elapsed());
    assert_eq!((scene.owner(1), scene.lver(1)), (Some((2, 2)), 2));
}

/// A connection registered for this process.
#[must_use]
pub fn registered(host: &Host) -> Connection {
    let mut connection = host.connect();
    connection.register();
    connection
}

/// Whole seconds of the machine's monotonic clock, as the programs write them to disk.
///
/// # Panics
/// When the clock cannot be read.
#[must_use]
pub fn now_seconds() -> u64 {
    let now =
        clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or_else(|error| panic!("monotonic clock: {error}"));
    u64::try_from(now.tv_sec()).unwrap_or_else(|_| panic!("negative monotonic time"))
}
